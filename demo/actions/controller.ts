/** Controls the page: opens with a recipe or an earlier run, starts, pauses, stops. `page.ts` and `notices.ts` hold what is shown. */

import { batch, effect } from '@preact/signals';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/index.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { amended } from '../../src/runs/amended.ts';
import { plural } from '../../src/ui/format.ts';
import { dtypeNote, engineSizes } from '../../src/workers/engineSpec.ts';
import type { Session } from '../engine/session.ts';
import { adapterName, findAdapter, type FoundAdapter } from '../engine/adapter.ts';
import { keepStepTime } from '../state/estimate.ts';
import { foreignHosts, resultIn, unknownParameters } from '../state/address/address.ts';
import { address, hub } from '../state/address/visit.ts';
import { adapter, complain, inform, message, notSaved } from '../state/notices.ts';
import {
  download,
  dropSession,
  evaluation,
  heldOut,
  history,
  scored,
  session,
  showPhase,
  shownRun,
  showSession,
  stepsDone,
  tries,
  weightsStep,
} from '../state/page.ts';
import { changeWords } from '../state/changeWords.ts';
import { DEFAULT_RECIPE, fetchRecipe } from '../state/recipes.ts';
import { asked, beginChanges, rulesReplaced, settingChanged } from '../state/rules.ts';
import { present, showHistory } from '../state/present.ts';
import { titleOf } from '../state/runs.ts';
import { form, formIsReady, YOUR_MODEL } from '../state/settings/settings.ts';
import { showShared } from '../state/shared.ts';
import { showTries, showTry } from '../state/tries/growing.ts';
import { keepAnswers } from '../state/tries/comparison.ts';
import { keepTries } from '../state/tries/stepTries.ts';
import { LR, type RunChange, valueInForce, withoutRate, withoutRules } from '../storage/runChanges.ts';
import { claimRun, discardRun, newestRun, openRun, readRun } from '../storage/saved.ts';
import type { SavedRun } from '../storage/savedRuns.ts';
import type { RunEvents } from '../training/run.ts';
import { permission, rulesLetIn } from './permission.ts';
import { beginRules, repeatChanges } from './rules.ts';
import { saveFile } from './saveFile.ts';
import { takeSession, warmWhenIdle, warmWhenSettled } from './warm.ts';
import {
  active,
  enter,
  leave,
  type Looking,
  offerAt,
  OPENING,
  progress,
  run,
  shared,
  stage,
  state,
} from '../state/stage.ts';

/** Loads, on demand, the code that trains. */
const loadTraining = () => import('../training/run.ts');

/** The GPU adapter. It is requested when the page opens, but the GPU process can take a while to start. Rejects with NoGpuError. */
let adapterFound: Promise<FoundAdapter> | undefined;

/** Fills the form from the address; then Start can be pressed. Returns false if it showed a message that `open` would hide. */
export async function openForm(): Promise<boolean> {
  adapterFound = findAdapter();
  adapterFound.then(
    (found) => (adapter.value = found),
    () => {}, // callers that await it report the error
  );
  const refused = await openRecipe(address.get('config') ?? DEFAULT_RECIPE, address).catch((error: unknown) => error);
  if (refused) await openRecipe(DEFAULT_RECIPE);
  const unknown = unknownParameters(address);
  if (unknown !== undefined) message.value = { kind: 'error', title: 'In the address:', text: unknown };
  const result = resultIn(location.hash);
  if (result !== undefined) await showShared(result, () => form.config()); // a shared result is shown first
  if (refused) complain(refused);
  formIsReady.value = true;
  return !refused && unknown === undefined && result === undefined;
}

/**
 * Called once a GPU was found. The page warms up, starts what the address requests, or shows the newest run. Throws NoGpuError.
 * @param goesOn false = only show the name of the GPU
 */
export async function open(goesOn: boolean): Promise<void> {
  try {
    await openVisit(goesOn);
  } finally {
    if (stage.peek() === OPENING) leave();
  }
}

async function openVisit(goesOn: boolean): Promise<void> {
  const before = stage.peek();
  if (goesOn) loadTraining().catch(() => {}); // Start reports the error
  await adapterFound;
  if (!goesOn) return;
  const starts = address.has('autostart') || address.get('resume') === 'auto';
  if (!starts) warmWhenIdle(() => form.config());
  const saved = await newestRun();
  if (stage.value !== before) return; // a run was started meanwhile
  if (saved && !saved.record.finished && address.get('resume') === 'auto') await start(saved);
  else if (address.has('autostart')) await startByLink(form.config());
  else if (saved) await showRun(saved);
}

/**
 * Starts immediately if the run needs only the page's own files. Otherwise asks first: nothing is loaded from other servers without a
 * click.
 */
async function startByLink(of: TrainConfig): Promise<void> {
  const hosts = foreignHosts(of, hub);
  if (hosts.length === 0) return start();
  const from = hosts.join(' and ');
  if (stage.peek() === OPENING) leave();
  enter({
    name: 'asking',
    offer: {
      text: `This link trains ${of.model.path}, with files from ${from}. Nothing has been downloaded yet.`,
      choices: { [`Load from ${from} and start`]: () => void start(), Cancel: leave },
    },
  });
}

let opening = 0;

/**
 * Fills the form with a recipe, unless another is chosen or a run is started meanwhile. Throws InputError, and then leaves the form
 * unchanged.
 */
export async function openRecipe(name: string, changes?: URLSearchParams): Promise<void> {
  const call = ++opening;
  const text = await fetchRecipe(name === YOUR_MODEL ? DEFAULT_RECIPE : name);
  if (call !== opening || active.value) return;
  form.open(text, name === YOUR_MODEL ? DEFAULT_RECIPE : name, changes);
  form.wantsModel.value = name === YOUR_MODEL;
}

/** Shows a run of an earlier visit: its saved curves and tries, and a button to continue the run. */
export async function showRun(saved: SavedRun): Promise<void> {
  const of = parseTrainConfig(saved.config, { source: 'config.yaml' });
  const done = saved.history.at(-1)?.['training/global_step'] ?? 0;
  const text = () =>
    saved.record.finished
      ? `${titleOf(saved)} is finished: ${plural(done, 'step')}.`
      : `${titleOf(saved)} stopped after step ${done} of ${of.trainer.totalTrainingSteps}.`;
  const here = enter<Looking>({ name: 'looking', at: 'saved', offer: { text: text(), choices: {} } });
  message.value = undefined;
  if (weightsStep.value !== 0 && saved.id !== shownRun.value) showSession(undefined); // another run's weights
  present({ ...saved, config: of, adapter: saved.record.adapter });
  // A page that is being reloaded may still hold the run.
  const release = await claimRun(saved, 500);
  release?.();
  if (stage.value !== here) return;
  if (!release) return offerLater(here, saved);
  offerRun(here, saved, text(), saved.record.finished ? undefined : 'Resume');
}

/** Offers to continue a run that another tab trains, once that tab is closed. */
async function offerLater(at: Looking, saved: SavedRun): Promise<void> {
  const here = offerAt(at, { text: `${titleOf(saved)} is open in another tab.`, choices: {} });
  (await claimRun(saved, Infinity))?.();
  const left = await readRun(saved.id);
  if (stage.value !== here) return;
  if (left) await showRun(left);
  else offerAt(here, undefined);
}

/** @param goOn label of the button; undefined = the run has ended */
function offerRun(at: Looking, saved: SavedRun, text: string, goOn?: string): void {
  const discard = async () => {
    if (stage.value !== here) return; // a click that was late
    leave();
    message.value = undefined;
    present();
    await discardRun(saved);
  };
  const choices = {
    ...(goOn !== undefined && { [goOn]: () => void start(saved) }),
    Discard: () => void discard().catch(complain),
  };
  const here = offerAt(at, { text, choices });
}

/**
 * Trains with the form's config or `given`, from the start or from a saved run. While a fork is being prepared, starts the fork. Shows
 * every failure to the visitor.
 * @param changes settings and rules of another run, which the new run repeats at the same steps
 */
export async function start(from?: SavedRun, given?: TrainConfig, changes?: readonly RunChange[]): Promise<void> {
  if (active.value) return;
  [message.value, notSaved.value] = [undefined, undefined];
  if (stage.value.name === 'forking' && !from) return stage.value.start();
  let asked: TrainConfig;
  try {
    if (from && !given && from.id !== form.run) form.open(from.config, 'config.yaml');
    asked = given ?? form.config();
  } catch (error) {
    return complain(error); // the run that is shown has ended and did not change
  }
  try {
    await train(asked, from, { changes, isForm: from !== undefined && given !== undefined });
  } catch (error) {
    const here = fail(error);
    const id = form.run ?? from?.id;
    if (here && !from && stepsDone.value === 0) await forgetRun().catch(complain);
    else if (here && id !== undefined) await offerAgain(here, id, error);
  }
}

/** @param isForm true if the visitor chose `of` in the form of a fork. Its learning rate then wins over earlier changes of the run. */
async function train(
  of: TrainConfig,
  from: SavedRun | undefined,
  { changes, isForm }: { changes: readonly RunChange[] | undefined; isForm: boolean },
): Promise<void> {
  enter({ name: 'running', progress: 'loading' });
  const isOther = !isInForm(of); // asked now: what is typed while the run loads stays in the form
  form.run = undefined;
  const loaded = loadTraining();
  loaded.catch(() => {}); // reported at the place that awaits it
  await adapterFound;
  const warm = takeSession(of);
  warm?.catch(() => {}); // the run opens another session
  const { Run } = await loaded;
  if (of.task.module !== undefined) await letIn(of.task.module);
  const goesBy = !from || (await rulesLetIn(from, 'Resume without its rules'));
  const onProblem = (text: string | undefined) => void (notSaved.value = text);
  const where = { hub, adapter: adapter.value?.name };
  const { held, saved, checkpoint, notes = [] } = await openRun(of, { ...(from && { from }), ...where, onProblem });
  const own = held && isOther ? await readRun(held.id) : undefined;
  if (own) form.open(own.config, 'config.yaml');
  form.run = held?.id;
  const step = checkpoint?.state.step ?? -1;
  const kept = goesBy ? saved?.changes : saved && withoutRules(saved.changes, Math.max(0, step) + 1);
  const { lr } = of.actor.optim;
  const isReset = isForm && kept !== undefined && valueInForce(kept, Infinity, LR, lr) !== lr;
  const before = changes ?? (isReset ? withoutRate(kept) : kept);
  if (isReset && checkpoint?.state.changes) checkpoint.state.changes = withoutRate(checkpoint.state.changes);
  present({
    ...{ id: held?.id, config: of, history: upTo(step, saved?.history) },
    adapter: (saved?.record ?? where).adapter,
    tries: saved?.tries ?? (warm ? tries.value.filter((one) => one.step === 0) : []),
  });
  beginChanges(before, (all) => started.writeChanges(all));
  const changed = saved ? changeWords(saved.config, of) : [];
  if (changed.length > 0) notes.push(`Changed settings: ${changed.join(', ')}.`);
  const events = eventsOf(of, saved && notes.join(' '));
  const startIsKnown = history.value.some((line) => line['training/global_step'] === 0);
  const started = new Run({
    config: of,
    hub: saved ? saved.record.hub : hub,
    held,
    from: checkpoint,
    warm,
    startIsKnown,
    events,
  });
  if (before && (changes || isReset || !goesBy)) started.writeChanges(before);
  progress({ run: started });
  if (isStopping()) started.stop(); // pause or stop was requested before the run existed
  let finished = false;
  try {
    const { step, stopped, reached, warnings } = await started.train();
    finished = !stopped;
    const end = `${stopped ? 'Stopped' : 'Finished'} after ${plural(step, 'step')}`;
    inform([`${end}${reached === undefined ? '' : `: ${reached}`}.`, ...warnings].join(' '));
  } finally {
    progress({ run: undefined });
    await started.end(finished);
  }
  const here = enter({ name: 'looking', at: 'ended' });
  if (!finished && form.run !== undefined) await offerAgain(here, form.run);
}

/** True if the form has these settings. A run that is resumed later takes the form's. */
function isInForm(of: TrainConfig): boolean {
  const { value } = form.checked;
  return 'config' in value && JSON.stringify(value.config) === JSON.stringify(of);
}

/** Deletes a new run that trained no step. */
async function forgetRun(): Promise<void> {
  const id = form.run;
  [form.run, shownRun.value] = [undefined, undefined];
  if (id !== undefined) await discardRun({ id });
}

const isStopping = (): boolean => state.value === 'stopping';

/** Asks whether a module from another server may be loaded; Stop counts as no. Throws InputError then. */
async function letIn(module: string): Promise<void> {
  const { letModuleIn } = await import('../engine/openTask.ts');
  await letModuleIn(module, ({ host, text }) => permission(text, `Load from ${host}`, 'Cancel'));
}

/** Offers to continue a run that ended before its last step. */
async function offerAgain(at: Looking, id: string, error?: unknown): Promise<void> {
  const saved = await readRun(id);
  if (!saved) return;
  const { step } = saved;
  const diverged = error instanceof Error && error.name === 'NotFiniteError';
  if (diverged && step > 0)
    offerRun(at, saved, 'Training diverged. A lower learning rate may help.', `Resume from step ${step}`);
  else offerRun(at, saved, step > 0 ? `The run is saved after step ${step}.` : 'The run is saved.', 'Resume');
}

const upTo = (step: number, lines: readonly Metrics[] = []): Metrics[] =>
  lines.filter((line) => line['training/global_step'] <= step);

async function countHeldOut({ task }: Session, { data }: TrainConfig): Promise<void> {
  heldOut.value = undefined;
  heldOut.value = (await task.heldOut(data.valMaxSamples)).length;
}

/** @param before message to show when a resumed run starts */
function eventsOf(of: TrainConfig, before: string | undefined): RunEvents {
  /** Message about what happened before this engine was opened; undefined = no message. */
  let said = before;
  return {
    onDownload: (received) => {
      if (state.value === 'loading') download.value = received;
    },
    onLoaded: (opened) => {
      const info = opened.engine.description.adapter;
      const from = run.value!.training.keptStep;
      showSession(opened, Math.max(0, from));
      download.value = undefined;
      void countHeldOut(opened, of).catch(() => {}); // the evaluation reports the error
      adapter.value = { name: adapterName(info), isSoftware: info.isSoftware };
      const asked = engineSizes(of);
      const { lowered, tokenizer } = opened.engine;
      const notes = [
        said !== undefined && `${said} Resumed from ${from < 0 ? 'the start' : `step ${from}`}`.trim(),
        dtypeNote(asked, info.features.includes('shader-f16') ? asked : {}),
        lowered && `Lowered to fit: ${lowered.note}`,
        tokenizer.endNote && `${of.model.path}: ${tokenizer.endNote}`,
      ].filter(Boolean);
      if (notes.length > 0) inform(`${notes.join('. ')}.`);
      progress({ progress: run.value!.asked });
    },
    onClosed: dropSession,
    onTrainer: beginRules,
    onChange: settingChanged,
    onReplace: rulesReplaced,
    onPhase: showPhase,
    onSample: (sample, step) => {
      scored.value++;
      showTry(sample, step);
    },
    onEvaluating: (evaluated) => void (evaluation.value = evaluated),
    onValidation: keepAnswers,
    onEvaluated: (metrics) => void (history.value = amended(history.value, metrics)),
    onStep: (metrics, newTries) => {
      batch(() => {
        history.value = [...history.value, metrics];
        keepStepTime(of, metrics);
        if (newTries.length === 0) return;
        keepTries(newTries);
        showTries(newTries);
      });
      return repeatChanges(metrics['training/global_step']);
    },
    onFault: inform,
    onPaused: () => progress({ progress: 'paused' }),
    onLost: (error, from) => {
      const what = error instanceof Error && error.name === 'WorkerDiedError' ? 'The engine' : 'The GPU';
      said = `${what} was lost at step ${stepsDone.value + 1}.`;
      inform(`${said} Starting a new one...`);
      showHistory(upTo(from, history.value), of);
      progress({ progress: 'loading' });
    },
  };
}

// Between runs, the page makes no GPU call that could fail and show that the GPU is lost. So watch the session.
effect(() => {
  const open = session.value;
  open?.failed.catch(() => {
    if (session.value !== open || run.value) return;
    dropSession(open);
    if (state.value !== 'idle') inform('The GPU was lost. Press Start to open it again.');
  });
});

/** Pauses the active run, or resumes a paused one. */
export function pauseOrResume(): void {
  const paused = state.value !== 'running';
  if (paused) run.value?.resume();
  else run.value?.pause();
  progress({ progress: paused ? 'running' : 'pausing' });
}

/** Stops the active run. */
export function stop(): void {
  run.value?.stop();
  progress({ progress: 'stopping' });
}

/** Reloads the page. An active run pauses first, which saves it. */
export async function reloadPage(): Promise<void> {
  if (state.value === 'running') pauseOrResume();
  await new Promise<void>((settled) => {
    const unsubscribe = state.subscribe((now) => {
      if (now === 'pausing' || now === 'stopping') return;
      settled();
      queueMicrotask(() => unsubscribe());
    });
  });
  await run.value?.training.written;
  location.reload();
}

/** Saves the shown history as metrics.jsonl. */
export function saveMetrics(): void {
  const lines = history.value.map((metrics) => `${JSON.stringify(metrics)}\n`);
  saveFile('metrics.jsonl', new Blob(lines, { type: 'application/jsonl' }));
}

/** Shows every failure, as a sentence, and ends an active run. Returns the stage that follows the run. */
export function fail(error: unknown): Looking | undefined {
  download.value = undefined;
  const isStopped = error instanceof Error && error.name === 'StoppedError';
  if (isStopped) inform('Stopped during a step. That step is discarded.');
  else complain(error);
  return active.value ? enter<Looking>({ name: 'looking', at: isStopped ? 'ended' : 'failed' }) : undefined;
}

// While a rule replaces the reward, a few held-out problems are evaluated every few steps.
effect(() => {
  if (run.value) run.value.watched = asked.value.reward !== undefined;
});

effect(() => {
  // No session is opened ahead of Start while a shared result is shown.
  if (formIsReady.value && adapter.value && !shared.value && 'config' in form.checked.value)
    warmWhenSettled(() => form.config());
});

// The browser can end a hidden page without further events.
document.addEventListener('visibilitychange', () => {
  if (document.hidden) run.value?.training.keepSoon();
});
addEventListener('beforeunload', (event) => {
  if (active.value && run.value && run.value.training.unsavedSteps > 0) event.preventDefault();
});
