/** Tests changes during a run: the rules of each step, and parsing of an untrusted file. */

import { expect, test, vi } from 'vitest';
import { enter } from '../../demo/state/stage.ts';
import { beginRules, repeatChanges } from '../../demo/actions/rules.ts';
import {
  asked as rulesAsked,
  beginChanges,
  changes,
  changeSettings,
  record,
  setLive,
  whenItApplies,
} from '../../demo/state/rules.ts';
import { ask } from '../../demo/actions/ask.ts';
import { refusal } from '../../demo/state/ask.ts';
import { config as shownConfig, history, showSession } from '../../demo/state/page.ts';
import { changesText, readChanges } from '../../demo/storage/changesFile.ts';
import {
  changesAt,
  hasCode,
  rulesAt,
  type RunChange,
  valueInForce,
  withoutRules,
} from '../../demo/storage/runChanges.ts';
import type { Run } from '../../demo/training/run.ts';
import type { Session } from '../../demo/engine/session.ts';
import type { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { LiveChange } from '../../src/grpo/types.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { Task } from '../../src/tasks/task.ts';
import type { Tool } from '../../src/tasks/tool.ts';
import { stub } from '../stub.ts';

const adopt = vi.hoisted(() => vi.fn((_rules: object, _step: number) => Promise.resolve()));
const withOpenTool = (task: Task): Task => ({ ...task, tools: [stub<Tool>({ name: 'of the rule' })] });
vi.mock('../../demo/actions/openRules.ts', () => ({ adopt, give: () => {}, withOpenTool }));
vi.mock('../../demo/state/address/visit.ts', () => ({ hub: undefined, address: new URLSearchParams() }));
const answered = vi.hoisted(() => vi.fn());
vi.mock('../../demo/engine/answering.ts', () => {
  const engine = { tokenizer: { decode: () => '' } };
  const opened = { engine, contextLength: 9e9, hasStart: false, has: () => true, answer: answered };
  return { Answering: { open: () => Promise.resolve(opened) } };
});
vi.mock('../../src/extensions/ask/index.ts', () => ({
  questionOf: () => Promise.resolve({ messages: [] }),
  questionTokens: () => 1,
}));

const [calls, length] = ['calls', 'length'].map((name) => ({
  name,
  code: `export const reward = () => 1; // ${name}`,
}));
const RATE: LiveChange = { step: 4, key: 'actor.optim.lr', from: 3e-4, to: 1e-4 };
const CHANGES: RunChange[] = [
  { step: 2, rule: 'reward', ...calls },
  RATE,
  { step: 4, rule: 'reward', ...length },
  { step: 6, failed: 'reward' },
  { step: 7, rule: 'reward', name: "the task's own reward" },
];

test('a step uses the newest rule of each kind up to it', () => {
  const at = (step: number) => rulesAt(CHANGES, step);
  const none = { loss: undefined, tool: undefined };
  expect(at(1)).toEqual({ reward: undefined, ...none });
  expect([at(2), at(3)]).toEqual(Array(2).fill({ reward: calls, ...none }));
  expect([at(4), at(6)]).toEqual(Array(2).fill({ reward: length, ...none }));
  expect(at(7)).toEqual({ reward: undefined, ...none });
});

test('only the changes of a step are applied', () => {
  expect(changesAt(CHANGES, 4)).toEqual({ settings: { 'actor.optim.lr': 1e-4 }, rules: { reward: length } });
  expect(changesAt(CHANGES, 7)).toEqual({ settings: {}, rules: { reward: undefined } });
  expect([3, 6].map((step) => changesAt(CHANGES, step))).toEqual([undefined, undefined]);
});

test.each([
  [3, 3e-4, 3e-4],
  [4, 3e-4, 1e-4],
  [8, 3e-4, 1e-4],
  [9, 3e-4, 2e-4],
  [9, 5e-4, 5e-4],
  [3, 'auto', 'auto'],
  [4, 'auto', 1e-4],
])('step %i, %s in the config: the learning rate in force is %s', (step, own, now) => {
  const all: RunChange[] = [...CHANGES, { step: 9, key: 'actor.optim.lr', from: 1e-4, to: 2e-4 }];
  expect(valueInForce(all, step, 'actor.optim.lr', own)).toBe(now);
});

test('removing rules from a step on keeps earlier rules and the settings', () => {
  const own = { step: 5, rule: 'reward', name: "the task's own reward" };
  expect(withoutRules(CHANGES, 5)).toEqual([...CHANGES.slice(0, 4), own]);
  expect(withoutRules(CHANGES, 1)).toEqual([CHANGES[1], CHANGES[3]]);
});

test('changes survive a round trip as text; an invalid line is refused', () => {
  expect(readChanges(changesText(CHANGES), 'changes.jsonl')).toEqual(CHANGES);
  expect([hasCode(CHANGES), hasCode(CHANGES.slice(1, 2))]).toEqual([true, false]);
  const wrong = [
    ...['{', '3', 'null', '{"step":1}', '{"step":0,"failed":"reward"}', '{"step":1,"failed":"weights"}'],
    ...['{"step":1,"rule":"reward","name":"x","code":1}', '{"step":1,"rule":"model","name":"x"}'],
    ...['{"step":1,"key":"seed","from":1,"to":2}', '{"step":1,"key":"actor.optim.lr","from":1,"to":"2"}'],
  ];
  for (const line of wrong)
    expect(() => readChanges(`${changesText(CHANGES.slice(0, 1))}${line}\n`, 'changes.jsonl'), line).toThrow(
      /^changes\.jsonl, line 2 is not a change of a run\./,
    );
});

/** Returns a trainer that has finished step `step` with the recorded `changes`, and the settings that are given to it. */
function trainerAt(step: number, changes: LiveChange[] = []) {
  const told: object[] = [];
  return {
    told,
    trainer: stub<GrpoTrainer>({ state: { step, changes }, change: (settings: object) => told.push(settings) }),
  };
}

test("a question is answered by the run's settings and tools of now", async () => {
  answered.mockResolvedValue({ messages: [], trajectory: { stopReason: 'aborted' }, observation: '' });
  const config = resolveTrainConfig({ name: 'x', model: { path: 'x' }, rollout: { temperature: 1, topP: 0.9 } });
  const opened = { ...config, rollout: { ...config.rollout, temperature: 0.8 } }; // the run took a session of other settings
  shownConfig.value = config;
  const task = stub<Task>({ tools: [{ name: 'own' }] });
  const set = (key: string, from: number, to: number, step: number): RunChange => ({ step, key, from, to });
  record.value = [
    set('rollout.temperature', 1, 0.5, 2),
    set('rollout.topP', 0.9, 0.7, 3),
    set('rollout.temperature', 0.5, 0.3, 4),
  ];
  history.value = [{ 'training/global_step': 2 }];
  const asked = async (step: number) => {
    showSession(stub<Session>({ config: opened, task, close: () => {} }), step);
    expect([await ask('?'), refusal.value]).toEqual([true, '']);
    const [, options] = answered.mock.lastCall as [string, { config: TrainConfig; task: Task }];
    const { temperature, topP } = options.config.rollout;
    return [temperature, topP, options.task.tools!.map(({ name }) => name)];
  };
  expect(await asked(2)).toEqual([0.5, 0.7, ['own']]);
  expect(await asked(0), "an untrained session beside another run's changes").toEqual([0.8, 0.9, ['own']]);
  rulesAsked.value = { tool: { name: '', code: '' } };
  expect(await asked(2)).toEqual([0.5, 0.7, ['of the rule']]);
  [rulesAsked.value, record.value, history.value, shownConfig.value] = [{}, [], [], undefined];
  showSession(undefined);
});

test('a change in the last step, or while a run stops, is said to wait for the next run', () => {
  const at = (step: number, now: 'running' | 'paused' | 'stopping') => {
    enter({ name: 'running', progress: now, run: stub<Run>({}) });
    const config = { trainer: { totalTrainingSteps: 12 } };
    setLive(stub<GrpoTrainer>({ ...trainerAt(step).trainer, config }), stub<Session>({}));
    const said = whenItApplies();
    enter({ name: 'looking', at: 'ended' });
    return said;
  };
  expect(whenItApplies()).toBe('Applies when a run starts.');
  const none = 'This run has no further step. Applies when the next run starts.';
  expect([at(10, 'running'), at(11, 'paused')]).toEqual(Array(2).fill('Applies at the next step.'));
  expect([at(11, 'running'), at(12, 'running'), at(3, 'stopping')]).toEqual(Array(3).fill(none));
});

test('an engine that resumes gets the rules in force, later ones at their steps, and a setting that waits', async () => {
  const lr = (value: number) => ({ 'actor.optim.lr': value });
  const later: RunChange = { step: 6, key: 'actor.optim.lr', from: 1e-4, to: 5e-5 };
  const kept: (readonly RunChange[])[] = [];
  const adopted = adopt.mock.calls;
  enter({ name: 'running', progress: 'running', run: stub<Run>({}) });
  beginChanges([...CHANGES.slice(0, 3), later], (all) => kept.push(all));
  const { trainer, told } = trainerAt(3);
  await beginRules(trainer, stub<Session>({}));
  expect([told, adopted]).toEqual([[lr(1e-4)], [[{ reward: length, loss: undefined, tool: undefined }, 4]]]);

  const other = trainerAt(2); // as after another loss of the GPU
  await beginRules(other.trainer, stub<Session>({}));
  expect([other.told, adopted.pop()]).toEqual([[{}], [{ reward: calls, loss: undefined, tool: undefined }, 3]]);
  for (const step of [3, 4]) {
    other.trainer.state.step = step;
    await repeatChanges(step);
  }
  expect(other.told.slice(1)).toEqual([lr(1e-4)]);
  expect(adopted.slice(1)).toEqual([[{ reward: length }, 4]]);

  changeSettings(lr(1e-3)); // replaces the later change of the first time
  expect(kept.at(-1)).toEqual(CHANGES.slice(0, 3));
  await repeatChanges(5);
  expect(other.told.slice(2)).toEqual([lr(1e-3)]);

  const last = trainerAt(5, [RATE]); // a loss before step 6, the first with the new rate; the recorded change is not recorded again
  await beginRules(last.trainer, stub<Session>({}));
  expect(last.told).toEqual([lr(1e-3)]);
  expect(changes.value.map(({ text }) => text)).toEqual([
    'Reward replaced by "calls"',
    'Learning rate 0.0003 \u2192 0.0001',
    'Reward replaced by "length"',
  ]);
});
