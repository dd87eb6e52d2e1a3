/** Tests `webgrpo replay` without a GPU: run folders with stored rollouts, and another reward. */

import { copyFileSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, expect, test, vi } from 'vitest';
import { stringify } from 'yaml';
import { replay } from '../../src/cli/commands/replay.ts';
import { readArgs } from '../../src/cli/args.ts';
import { disk } from '../../src/cli/files.ts';
import { weightsFor } from '../../src/cli/replay/engine.ts';
import { InputError } from '../../src/errors.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { StepTimer } from '../../src/grpo/stepMetrics.ts';
import { PolicyStep } from '../../src/grpo/update/policyStep.ts';
import { stepTokens } from '../../src/grpo/update/stepTokens.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { compareLosses } from '../../src/extensions/replay/compareLosses.ts';
import { forget, keepStep, keptSteps, readKept } from '../../src/extensions/replay/keptRollouts.ts';
import { rescore } from '../../src/extensions/replay/rescore.ts';
import type { Task } from '../../src/tasks/task.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';
import { scriptedEngine } from '../scriptedRuns.ts';

let [root, path]: string[] = [];
let folder: RunFolder;
const configOf = (trainer: object = {}, reward: object = {}) =>
  resolveTrainConfig({ name: 'run', model: { path: 'nowhere' }, reward, trainer: { keepRollouts: true, ...trainer } });

/** Returns two groups of two samples. The answer of sample s is right if scores[s] is 1. */
const samplesOf = (scores: number[]): Sample[] =>
  scores.map((score, s) => ({
    problem: { id: `p${s >> 1}`, messages: [{ role: 'user', content: 'q' }], answer: '4', level: s },
    group: s >> 1,
    messages: [{ role: 'assistant', content: score ? '#### 4' : '#### 5' }],
    reward: { score, acc: score },
    trajectory: {
      promptIds: Uint32Array.of(1),
      responseIds: Uint32Array.of(2, 3),
      mask: Uint8Array.of(1, 1),
      logProbs: Float32Array.of(-1, -2),
      logMass: new Float32Array(2),
      weightVersions: Uint32Array.of(1, 1),
      ...{ stopReason: 'completed', numTurns: 1, numToolCalls: s === 0 ? 2 : 0, numToolErrors: 0 },
    },
  }));

async function keep(step: number, config: TrainConfig = configOf(), scores = [1, 0, 1, 0]): Promise<void> {
  const samples = samplesOf(scores);
  await keepStep(folder, config, step, samples, { tokens: stepTokens(config, samples), extras: {} });
}

beforeEach(async () => {
  vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  root = mkdtempSync(join(tmpdir(), 'webgrpo-replay-'));
  path = join(root, 'run');
  ({ folder } = await RunFolder.create(disk, path, configOf()));
});

/** Returns what the command prints with --json. */
async function run(...args: string[]): Promise<{ page: string; rewards: Record<string, number>[] }> {
  let told: unknown;
  await replay.run(readArgs([path, ...args], replay.flags), {
    json: true,
    text: () => {},
    result: (value) => (told = value),
  });
  return told as { page: string; rewards: Record<string, number>[] };
}
const refusal = (...args: string[]): Promise<string> =>
  run(...args).then(
    () => 'done',
    (error: unknown) => (error instanceof InputError ? error.message : `no sentence: ${String(error)}`),
  );
function moduleOf(code: string): string {
  const file = join(root, `reward-${Math.random()}.mjs`);
  writeFileSync(file, code);
  return file;
}

test('the example rescores a run, and the page contains its numbers', async () => {
  await keep(1);
  await keep(2, configOf(), [0, 0, 1, 0]);
  const { page, rewards } = await run('--reward', 'examples/replay-reward.js');
  expect(rewards).toEqual([
    {
      step: 1,
      samples: 4,
      oldScore: 0.5,
      newScore: 0.45,
      correlation: expect.closeTo(0.9879, 4) as number,
      bestChanged: 0,
      signFlips: 0,
    },
    { step: 2, samples: 4, oldScore: 0.25, newScore: 0.25, correlation: 1, bestChanged: 0, signFlips: 0 },
  ]);
  expect(page).toBe(join(path, 'replay.html'));
  expect(JSON.parse(readFileSync(join(path, 'replay.json'), 'utf8'))).toMatchObject({
    kind: 'replay',
    charts: [{ title: 'critic/score/mean', steps: [1, 2] }, { title: 'correlation' }, { title: 'shares' }],
  });
});

test('a reward gets the problem with the first observation of its environment, as in training', async () => {
  const config = configOf();
  const observed = [{ role: 'user' as const, content: 'q\nroom 7' }];
  const samples = samplesOf([1, 0, 1, 0]).map((sample) => ({ ...sample, prompt: observed }));
  await keepStep(folder, config, 1, samples, { tokens: stepTokens(config, samples), extras: {} });
  const file = moduleOf(
    "export default ({ problem }) => ({ score: problem.messages.at(-1).content.endsWith('room 7') ? 1 : 0, acc: 0 });",
  );
  const { rewards } = await run('--reward', file);
  expect(rewards[0].newScore).toBe(1);
});

test('an inverted reward changes the best sample of each group and every sign', async () => {
  await keep(1);
  const file = moduleOf(
    'export default ({ problem, response }) => ({ score: response.endsWith(problem.answer) ? 0 : 1, acc: 0 });',
  );
  const { rewards } = await run('--reward', file, '--step', 'last', '--out', join(root, 'other.html'));
  expect(rewards).toEqual([
    { step: 1, samples: 4, oldScore: 0.5, newScore: 0.5, correlation: -1, bestChanged: 1, signFlips: 1 },
  ]);
  expect(readFileSync(join(root, 'other.html'), 'utf8')).toContain('"kind":"replay"');
});

test.each([
  ['remax', { baselines: [0.5, 0.5, 0.5, 0.5] }, NaN],
  ['rae', { roleBaselines: { policy: 0.5 } }, NaN],
  ['rae', {}, 0.75],
] as const)('sign flips of %s with the baselines %j: %d', async (name, extras, signFlips) => {
  const config = resolveTrainConfig({ ...configOf(), algorithm: { name } });
  const samples = samplesOf([1, 0, 1, 0]);
  const advantages = stepTokens(config, samples, extras).advantages.map((values) => Float32Array.from(values));
  const step = { step: 1, run: 'run', config: '', samples, advantages, extras };
  const reward: Task['reward'] = ({ response }) => ({ score: response === '#### 4' ? 0 : 1, acc: 0 });
  expect(await rescore(step, config, reward)).toMatchObject({ correlation: -1, bestChanged: 1, signFlips });
});

test.each([
  [
    'throws',
    'export default () => { throw new Error("no"); };',
    /^The reward of problem "p0" threw "no".*\. Return \{ score, acc \}/,
  ],
  [
    'hangs',
    'export default () => new Promise(() => {});',
    /^The reward of problem "p0" did not resolve in 0\.05 s \(reward\.timeoutS\)/,
  ],
  ['returns a text', 'export default () => "good";', /^The reward of problem "p0" is "good"\. Return \{ score, acc \}/],
  [
    'returns Infinity',
    'export default () => Infinity;',
    /^The reward of problem "p0" is Infinity\. Give a finite number/,
  ],
  [
    'gives nobody a reward',
    'export default () => NaN;',
    /^Step 1 has no advantages by the new reward: None of the step's 4 samples has a reward/,
  ],
  ['is no function', 'export default 3;', /^--reward .*: it has no default export that is a function\. Write/],
  ['does not parse', 'export default (', /^--reward .* does not load: /],
])('a reward that %s: one sentence', async (_, code, message) => {
  await keep(1, configOf({}, { timeoutS: 0.05 }));
  writeFileSync(folder.file('config.yaml'), stringify(configOf({}, { timeoutS: 0.05 })));
  expect(await refusal('--reward', moduleOf(code))).toMatch(message);
});

test('a step whose caller chose its size is averaged over its own samples, as it was trained', async () => {
  const config = resolveTrainConfig({
    ...configOf(),
    actor: { ppoMiniBatchSize: 16, lossAggMode: 'seq-mean-token-sum' },
  });
  const noWaits = { baselines: () => Promise.resolve([]), pause: () => Promise.resolve(), whileUpdating: () => {} };
  const policy = new PolicyStep({ engine: scriptedEngine(), isOwnSize: true, ...noWaits }, config);
  const samples = samplesOf([1, 0]);
  const timer = new StepTimer(() => {});
  const inputs = await policy.inputs(samples, 1, timer);
  const { metrics } = await policy.update(samples, inputs, 1, timer);
  await keepStep(folder, config, 1, samples, inputs);
  const step = await readKept(folder, 1);
  const { losses } = await compareLosses(step, [{ name: 'run', config }], scriptedEngine());
  expect(losses[0].metrics['actor/grad_norm']).toBe(metrics['actor/grad_norm']);
});

test('a missing, damaged, truncated or renamed step ends in one error that says what to do', async () => {
  const reward = ['--reward', 'examples/replay-reward.js'];
  expect(await refusal(...reward)).toBe(
    `${path} has no saved rollouts. Train with trainer.keepRollouts=true, as in: train ${path}/config.yaml trainer.keepRollouts=true.`,
  );
  for (const step of [1, 2, 4]) await keep(step);
  expect(await refusal(...reward, '--step', '3')).toBe(
    `--step is "3", but ${path} has saved rollouts of steps 1, 2, 4. Give one of them, last or all.`,
  );
  expect(await refusal(...reward, '--algorithm', 'gspo')).toMatch(/^Give --algorithm or --reward, not both/);
  expect(await refusal('--algorithm', 'nope')).toMatch(
    /^--algorithm names "nope"; known: grpo, dr_grpo, .*vanilla.*registered with --import\.$/,
  );
  expect(await refusal('--reward', 'nowhere.js')).toBe(
    `--reward: there is no nowhere.js in ${process.cwd()}. Give the path of a .js or .ts file.`,
  );
  expect(await refusal('--checkpoint', '9')).toBe(
    `--checkpoint is "9", which is neither a folder nor a checkpoint of ${path}. It has checkpoints of steps 0 (0 = the start model).`,
  );
  const file = folder.file('rollouts', 'step-4.safetensors');
  copyFileSync(folder.file('rollouts', 'step-2.safetensors'), file);
  expect(await refusal(...reward, '--step', '4')).toBe(
    `${file} holds step 2. Give it the name step-2.safetensors again.`,
  );
  truncateSync(file, 100);
  expect(await refusal(...reward, '--step', '4')).toMatch(
    /^.*step-4\.safetensors claims a header of \d+ bytes, but only 92 follow\. The file is truncated/,
  );
  rmSync(folder.file('config.yaml'));
  expect(await refusal(...reward)).toBe(`${path} is not a run folder: config.yaml is missing. Give a run folder.`);
});

test('a step uses its own config, although the run continued with another', async () => {
  await keep(1, configOf({}, { timeoutS: 0.05 }));
  writeFileSync(folder.file('config-1.yaml'), stringify(configOf({}, { timeoutS: 0.05 })));
  expect(await refusal('--reward', moduleOf('export default () => new Promise(() => {});'))).toContain('0.05 s');
});

test('the configured number of last steps is kept, and repeated steps are deleted', async () => {
  for (const step of [1, 2, 3, 4]) await keep(step, configOf({ keepRollouts: 2 }));
  expect(await keptSteps(folder)).toEqual([3, 4]);
  await forget(folder, (step) => step > 3);
  expect(await keptSteps(folder)).toEqual([3]);
});

test('the weights are those before the update, or the newest earlier ones, and their source is printed', async () => {
  for (const step of [2, 5]) await disk.write(join(folder.checkpoint(step), 'x'), '');
  const place = async (step: number, flag?: string) => (await weightsFor(folder, step, flag)).words;
  expect(await place(1)).toBe('the start model of the run, the weights before its update');
  expect(await place(3)).toBe('checkpoints/step-2, the weights before its update');
  expect(await place(5)).toBe('checkpoints/step-2, not the weights before its update');
  expect(await place(3, '5')).toBe('checkpoints/step-5, not the weights before its update');
  expect((await weightsFor(folder, 3, root)).checkpoint).toBe(root);
});
