/** Tests the page's control of a run and of a replay, whose steps are told instead of trained: lost GPUs, hidden pages, and rules. */

import { expect, test, vi } from 'vitest';
import { stringify } from 'yaml';
import { start } from '../../demo/actions/controller.ts';
import { replayTo } from '../../demo/actions/replay.ts';
import { history } from '../../demo/state/page.ts';
import { asked } from '../../demo/state/rules.ts';
import { replay } from '../../demo/state/runs.ts';
import { run } from '../../demo/state/stage.ts';
import type { SavedRun } from '../../demo/storage/savedRuns.ts';
import type { RunEvents } from '../../demo/training/run.ts';
import { DeviceLostError } from '../../src/errors.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { stub } from '../stub.ts';

/** The page's document. */
const page = vi.hoisted(() => {
  const document = Object.assign(new EventTarget(), { hidden: false });
  vi.stubGlobal('document', document);
  for (const name of ['addEventListener', 'cancelAnimationFrame']) vi.stubGlobal(name, () => {});
  return document;
});

/** `trains` is called in place of the steps of each run; the others are what the page asks of a run. */
const { trains, keepSoon, stop } = vi.hoisted(() => ({
  trains: vi.fn<(events: RunEvents) => Promise<void>>(),
  ...{ keepSoon: vi.fn(), stop: vi.fn() },
}));
vi.mock('../../demo/training/run.ts', () => ({
  Run: class {
    watched = false;
    training = { keptStep: 0, keepSoon };
    stop = stop;
    readonly #events: RunEvents;
    constructor({ events }: { events: RunEvents }) {
      this.#events = events;
    }
    async train() {
      await trains(this.#events);
      return { step: 0, stopped: false, warnings: [] };
    }
    end = () => Promise.resolve();
  },
}));
vi.mock('../../demo/state/address/visit.ts', () => ({ hub: undefined, address: new URLSearchParams() }));
vi.mock('../../demo/storage/saved.ts', async (original) => ({
  ...(await original<typeof import('../../demo/storage/saved.ts')>()),
  openRun: () => Promise.resolve({}),
  readRun: () => Promise.resolve(undefined),
  savedRuns: () => Promise.resolve({ files: {}, path: (id: string) => id }),
}));

const config = resolveTrainConfig({ name: 'x', model: { path: 'x' } });
const line = (step: number) => ({ 'training/global_step': step });

test('after a loss of the GPU, the curves end at the step from which the run goes on', async () => {
  const shown: number[][] = [];
  trains.mockImplementation(async (events) => {
    const look = () => shown.push(history.value.map((of) => of['training/global_step']));
    for (const step of [1, 2, 3]) await events.onStep(line(step), []);
    look();
    events.onLost(new DeviceLostError('unknown', 'the driver went away'), 1);
    look();
    await events.onStep(line(2), []);
    look();
  });
  await start(undefined, config);
  expect(shown).toEqual([[1, 2, 3], [1], [1, 2]]);
});

test('a page that becomes hidden saves the state of its run', async () => {
  const saves: number[] = [];
  trains.mockImplementation(() => {
    for (const hidden of [false, true]) {
      page.hidden = hidden;
      page.dispatchEvent(new Event('visibilitychange'));
      saves.push(keepSoon.mock.calls.length);
    }
    return Promise.resolve();
  });
  await start(undefined, config);
  expect(saves).toEqual([0, 1]);
});

test('held-out problems are evaluated beside a rule for the reward, and not beside one for the loss', async () => {
  const watched: unknown[] = [];
  const rule = { name: 'mine', code: '' };
  trains.mockImplementation(() => {
    for (const rules of [{ loss: rule }, { reward: rule }, {}]) {
      asked.value = rules;
      watched.push(run.value?.watched);
    }
    return Promise.resolve();
  });
  await start(undefined, config);
  expect(watched).toEqual([false, true, false]);
});

test('a replay ends before the step in which a rule failed', async () => {
  trains.mockImplementation(async (events) => {
    for (let step = 1; step <= 5 && stop.mock.calls.length === 0; step++) await events.onStep(line(step), []);
  });
  const text = stringify(config);
  const logged = { record: {}, config: text, checkpoints: [], history: [1, 2, 3, 4, 5].map(line) };
  await replayTo(stub<SavedRun>({ id: 'x', ...logged, changes: [{ step: 4, failed: 'reward' }] }), 5);
  const steps = [1, 2, 3].map((step) => ({ step, differing: [] }));
  expect(replay.value).toMatchObject({ from: 0, to: 3, broken: 4, steps });
});
