/** The page: settings, buttons and status around a run. */

import { adapterName, findAdapter, NoGpuError } from './adapter.ts';
import { Charts } from './charts.ts';
import { explainLoss } from '../src/grpo/losses/explain.ts';
import type { Metrics } from '../src/grpo/metrics.ts';
import { dtypeNote, engineSizes } from '../src/workers/engineSpec.ts';
import { byId, el, setText } from '../src/report/page/dom.ts';
import { DownloadLine } from './download.ts';
import { fetchConfig } from './files.ts';
import { Notices, explain } from './notices.ts';
import { Rollouts } from './rollouts.ts';
import { Run, StoppedError } from './run.ts';
import { Settings } from './settings.ts';
import { Status } from './status.ts';
import { TimeBar } from './timeBar.ts';

type State = 'idle' | 'loading' | 'running' | 'pausing' | 'paused' | 'stopping' | 'done' | 'failed' | 'no-gpu';

const button = (id: string) => byId(id) as HTMLButtonElement;
const [startButton, pauseButton, stopButton] = [button('start'), button('pause'), button('stop')];
const saveButton = button('save');
const notices = new Notices(byId('notices'));
const charts = new Charts(byId('charts'));
const rollouts = new Rollouts(byId('rollouts'));
const timeBar = new TimeBar(byId('time'));
const status = new Status(byId('status'), byId('progress') as HTMLProgressElement);
const download = new DownloadLine(byId('download'));
const address = new URLSearchParams(location.search);
const AFTER_FIRST_STEP = 'Shown after the first step.';
let settings: Settings | undefined;
let run: Run | undefined;
let history: Metrics[] = [];

function setState(state: State): void {
  document.body.dataset['state'] = state;
  const active = ['loading', 'running', 'pausing', 'paused', 'stopping'].includes(state);
  settings?.enable(!active);
  startButton.disabled = active || state === 'no-gpu' || !settings;
  startButton.textContent = state === 'done' || state === 'failed' ? 'Start again' : 'Start';
  pauseButton.disabled = !['running', 'pausing', 'paused'].includes(state);
  pauseButton.textContent = state === 'paused' || state === 'pausing' ? 'Resume' : 'Pause';
  stopButton.disabled = !active;
  stopButton.textContent = state === 'stopping' ? 'Stop now' : 'Stop';
  saveButton.disabled = history.length === 0;
  status.setState(state);
}

async function open(): Promise<void> {
  setText(byId('loss'), AFTER_FIRST_STEP);
  setState('idle');
  const name = address.get('config') ?? 'gsm8k-tool';
  settings = new Settings(await fetchConfig(name), name, address);
  const adapter = await findAdapter();
  notices.adapter(adapter);
  setState('idle');
  if (address.has('autostart')) await start();
}

async function start(): Promise<void> {
  notices.clear();
  const config = settings!.config();
  history = [];
  charts.clear();
  rollouts.clear();
  timeBar.clear();
  setText(byId('loss'), AFTER_FIRST_STEP);
  status.begin(config);
  setState('loading');
  run = new Run(config, {
    onDownload: (progress) => {
      if (document.body.dataset['state'] === 'loading') download.show(progress);
    },
    onLoaded: ({ adapter }) => {
      download.hide();
      notices.adapter({ name: adapterName(adapter), isSoftware: adapter.isSoftware });
      const asked = engineSizes(config);
      const note = dtypeNote(asked, adapter.features.includes('shader-f16') ? asked : {});
      if (note) notices.info(`${note}.`);
      setState('running');
    },
    onPhase: (phase, step) => status.phase(phase, step),
    onSample: () => status.sample(),
    onStep: (metrics, samples) => {
      history.push(metrics);
      saveButton.disabled = false;
      status.step(metrics);
      charts.add(metrics);
      timeBar.add(metrics);
      setText(byId('loss'), explainLoss(metrics) ?? AFTER_FIRST_STEP);
      rollouts.show(samples, metrics['training/global_step']);
    },
    onPaused: () => setState('paused'),
  });
  const { stopped, state } = await run.train();
  notices.info(stopped ? `Stopped after step ${state.step}.` : `Finished: ${state.step} steps.`);
  setState('done');
}

function pauseOrResume(): void {
  const paused = document.body.dataset['state'] !== 'running';
  if (paused) run?.resume();
  else run?.pause();
  setState(paused ? 'running' : 'pausing');
}

function stop(): void {
  run?.stop();
  setState('stopping');
}

function saveMetrics(): void {
  const lines = history.map((metrics) => `${JSON.stringify(metrics)}\n`);
  const link = el('a');
  link.href = URL.createObjectURL(new Blob(lines, { type: 'application/jsonl' }));
  link.download = 'metrics.jsonl';
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Every failure ends here, in words. */
function fail(error: unknown): void {
  download.hide();
  if (error instanceof StoppedError) {
    notices.info('Stopped in the middle of a step.');
    setState('done');
    return;
  }
  notices.error(explain(error));
  setState(error instanceof NoGpuError ? 'no-gpu' : 'failed');
}

startButton.addEventListener('click', () => void start().catch(fail));
pauseButton.addEventListener('click', pauseOrResume);
stopButton.addEventListener('click', stop);
saveButton.addEventListener('click', saveMetrics);
byId('settings').addEventListener('submit', () => void start().catch(fail));
void open().catch(fail);
