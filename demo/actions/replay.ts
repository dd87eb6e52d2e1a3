/** Trains logged steps again from a saved state and compares each with the log. A run repeats bit for bit. */

import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/index.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import type { Checkpoint } from '../../src/grpo/types.ts';
import { loadTrainerCheckpoint } from '../../src/runs/checkpointFolder.ts';
import { InputError } from '../../src/errors.ts';
import type { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { Task } from '../../src/tasks/task.ts';
import { message, notSaved } from '../state/notices.ts';
import { config, dropSession, phase, scored, showPhase, showSession } from '../state/page.ts';
import { replay } from '../state/runs.ts';
import { hasCode } from '../storage/runChanges.ts';
import { readRun, savedRuns } from '../storage/saved.ts';
import type { SavedRun } from '../storage/savedRuns.ts';
import { differing } from '../training/differing.ts';
import { fail } from './controller.ts';
import { rulesLetIn } from './permission.ts';
import { goTo, stopFirst } from './runs.ts';
import { takeSession } from './warm.ts';
import { enter, progress, state } from '../state/stage.ts';

/** Returns the step of the newest saved state before `step`; 0 = the start of the run. */
export const stateBefore = ({ checkpoints }: SavedRun, step: number): number =>
  checkpoints.findLast((kept) => kept < step) ?? 0;

/** Repeats the steps up to `step` from the newest state before it. Shows every failure to the visitor. */
export async function replayTo(asked: SavedRun, step: number): Promise<void> {
  try {
    await stopFirst();
    const saved = (await readRun(asked.id)) ?? asked; // read again, because the end of the run wrote more
    [message.value, notSaved.value] = [undefined, undefined];
    const { changes } = saved;
    const from = stateBefore(saved, step);
    (await import('../storage/savedRuns.ts')).expectSameSettings(saved, from);
    const broken = changes.find((of) => 'failed' in of && of.step > from && of.step <= step)?.step;
    const to = broken === undefined ? step : broken - 1;
    replay.value = { from, to, steps: [], broken, hasRules: hasCode(changes) };
    enter({ name: 'running', progress: 'loading' });
    if (!(await rulesLetIn(saved, 'Cancel')))
      throw new InputError("A replay needs the run's rules, which you did not allow. Replay again and allow them.");
    const { files, path } = await savedRuns().then((store) => ({ files: store!.files, path: store!.path(saved.id) }));
    const checkpoint = from > 0 ? await loadTrainerCheckpoint(files, `${path}/checkpoints/step-${from}`) : undefined;
    if (to > from) await trainAgain(saved, to, checkpoint);
    await goTo(step);
    enter({ name: 'looking', at: 'ended' });
  } catch (error) {
    fail(error);
  } finally {
    phase.value = undefined;
  }
}

async function trainAgain(saved: SavedRun, to: number, checkpoint: Checkpoint | undefined): Promise<void> {
  const { Run } = await import('../training/run.ts');
  config.value = parseTrainConfig(saved.config, { source: 'config.yaml' });
  const of = withoutEvaluations(config.value);
  const warm = takeSession(of);
  warm?.catch(() => {}); // the run opens another session
  const nothing = () => {};
  const { RepeatedChanges } = await import('../training/repeatedChanges.ts');
  const repeated = new RepeatedChanges(saved.changes);
  let [trainer, task]: [GrpoTrainer?, Task?] = [];
  const again = new Run({
    config: of,
    hub: saved.record.hub,
    from: checkpoint,
    warm,
    replays: true,
    events: {
      onDownload: nothing,
      onLoaded: (opened) => {
        showSession(opened, Math.max(0, again.training.keptStep));
        progress({ progress: again.asked });
      },
      onClosed: dropSession,
      onTrainer: (now, { task: its }) => {
        [trainer, task] = [now, its];
        return repeated.begin(now, its);
      },
      onPhase: showPhase,
      onSample: () => void scored.value++,
      onEvaluating: nothing,
      onEvaluated: nothing,
      onStep: (metrics) => {
        compare(saved, metrics, to, () => again.stop());
        return repeated.goOn(metrics['training/global_step'], trainer!, task!);
      },
      onFault: nothing,
      onPaused: () => progress({ progress: 'paused' }),
      onLost: () => progress({ progress: 'loading' }),
    },
  });
  progress({ run: again });
  if (state.value === 'stopping') again.stop(); // requested before the run existed
  await again.train().finally(() => repeated.close());
}

function compare({ history }: SavedRun, metrics: Metrics, to: number, stop: () => void): void {
  const step = metrics['training/global_step'];
  const logged = history.find((line) => line['training/global_step'] === step);
  const steps = [...replay.value!.steps, { step, differing: logged ? differing(logged, metrics) : ['not logged'] }];
  replay.value = { ...replay.value!, steps };
  if (step >= to) stop();
}

/** Returns the config without evaluations, which do not change a run. */
function withoutEvaluations(of: TrainConfig): TrainConfig {
  const { stopWhen: _, ...trainer } = of.trainer;
  return { ...of, trainer: { ...trainer, testFreq: 0, valBeforeTrain: false } };
}
