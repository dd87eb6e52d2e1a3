/**
 * Tests how commands interpret a path: the path of a run folder, of its config or of its checkpoints stands for the run with its weights.
 */

import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { beforeAll, expect, onTestFinished, test } from 'vitest';
import type { Io } from '../../src/cli/process/io.ts';
import { modelOf, openTraining, runOf } from '../../src/cli/run/namedRun.ts';
import { passInterval } from '../../src/report/passInterval.ts';
import type { EngineSpec } from '../../src/workers/engineSpec.ts';
import { planMemory } from '../../src/workers/memoryPlan.ts';
import { metricsIn, RunningCommand, scriptedEngines, webgrpo } from '../commandLine.ts';
import { TestGate } from '../scripted/gate.ts';

const isFull = process.env['FULL_TESTS'] === '1';
const root = mkdtempSync(join(tmpdir(), 'webgrpo-named-'));
const run = join(root, 'tiny');
const config = join(run, 'config.yaml');
const checkpoint = join(run, 'checkpoints', 'step-1');
const start = async (...args: string[]) => {
  const { status, said, stdout } = await webgrpo(args, { createEngine: scriptedEngines() });
  return { status, stdout, told: said.join('\n') };
};
/** Writes a key of earlier versions into a run's config, as these versions did. */
function addRemovedKey(folder: string): void {
  const path = join(folder, 'config.yaml');
  const text = readFileSync(path, 'utf8');
  writeFileSync(path, text.replace(/^rollout:$/m, 'rollout:\n  asyncScheduling: auto'));
  expect(readFileSync(path, 'utf8')).not.toBe(text);
}
const stepsOf = (folder: string) => metricsIn(folder).map((line) => line['training/global_step']);

beforeAll(async () => {
  const settings = [
    'data.trainBatchSize=2',
    'actor.ppoMiniBatchSize=2',
    'rollout.n=2',
    'data.valMaxSamples=2',
    'actor.skipZeroAdvantages=false',
    'actor.optim.weightDecay=0.1',
  ];
  writeFileSync(parity, 'export default ({ response }) => response.length % 2;');
  const evaluations = { testFreq: 0, valBeforeTrain: false };
  const trainer = { totalTrainingSteps: 2, saveFreq: 1, keepRollouts: true, kernelTuning: 'off', ...evaluations };
  const { status, told } = await start(
    ...['train', 'configs/gsm8k-tool.yaml', 'name=tiny', `trainer.defaultLocalDir=${root}`, ...settings],
    ...Object.entries(trainer).map(([key, value]) => `trainer.${key}=${value}`),
  );
  expect(status, told).toBe(0);
});

test.each([
  ['the run folder', run, run],
  ['its config', config, run],
  ['one of its checkpoints', checkpoint, checkpoint],
])('eval of %s evaluates its weights, and names them', async (_, path, model) => {
  const { status, stdout, told } = await start('eval', path);
  expect(status, told).toBe(0);
  expect(told).toContain(`model: ${model},`);
  expect(stdout).toMatch(new RegExp(`^  ${model}, 2 problems: pass@1 `, 'm'));
});

test('eval writes the outcome of every sampled try by problem, and prints the interval of its pass rate', async () => {
  const file = join(root, 'outcomes.json');
  const tries = ['data.valMaxSamples=5', 'rollout.valKwargs.n=3'];
  const { status, stdout, told } = await start('eval', run, '--outcomes', file, ...tries);
  expect(status, told).toBe(0);
  const outcomes = JSON.parse(readFileSync(file, 'utf8')) as { problems: string[]; tries: number[][] };
  expect(outcomes.problems).toEqual([0, 1, 2, 3, 4].map((index) => `held-out-${index}`));
  expect(outcomes.tries.map(({ length }) => length)).toEqual([3, 3, 3, 3, 3]);
  const rate = outcomes.tries.flat().reduce((a, b) => a + b) / 15;
  expect(stdout).toContain(`pass@1 ${rate.toFixed(3)},`);
  const { low, high } = passInterval(outcomes.tries);
  expect(stdout).toContain(`  95% interval of pass@1, over problems: ${low.toFixed(3)} to ${high.toFixed(3)}\n`);
});

test('eval counts the problems of each held-out set, and gives each set its own rate and interval', async () => {
  const line = (index: number) => JSON.stringify({ prompt: `Say ${index}.`, answer: String(index) });
  const sets = { easy: 2, hard: 3 };
  for (const [name, count] of Object.entries(sets))
    writeFileSync(join(root, `${name}.jsonl`), Array.from({ length: count }, (_, i) => line(i)).join('\n'));
  const paths = Object.keys(sets).map((name) => `${name}: ${join(root, `${name}.jsonl`)}`);
  const task = ['task.name=jsonl', `task.path=${join(root, 'hard.jsonl')}`, `task.valPath={${paths.join(', ')}}`];
  const options = `task.options={reward: module, module: ${parity}}`;
  const file = join(root, 'outcomes.json');
  const more = ['data.valMaxSamples=100', 'rollout.valKwargs.n=4', '--outcomes', file];
  const { status, stdout, told } = await start('eval', run, '--json', ...task, options, ...more);
  expect(status, told).toBe(0);
  const outcomes = JSON.parse(readFileSync(file, 'utf8')) as { tries: number[][] };
  const result = JSON.parse(stdout) as Record<string, unknown> & { sets: Record<string, object> };
  const expected = ([name, problems]: [string, number], first: number) => {
    const { mean, low, high } = passInterval(outcomes.tries.slice(first, first + problems));
    expect(result.sets[name]).toMatchObject({ problems, passAt1: mean, passAt1Interval: [low, high] });
  };
  expected(['easy', 2], 0);
  expected(['hard', 3], 2);
  expect(result).toMatchObject(result.sets['easy']);
});

test('eval leaves out problems with an unknown outcome, in the rate, the interval and the count', async () => {
  const reward = join(root, 'unknown.js');
  writeFileSync(
    reward,
    'export default ({ response: { length } }) => ({ score: 1, acc: length % 3 ? length % 2 : NaN });',
  );
  const [file, data] = [join(root, 'unknown.json'), join(root, 'ten.jsonl')];
  writeFileSync(
    data,
    Array.from({ length: 10 }, (_, i) => JSON.stringify({ prompt: `Say ${i}.`, answer: '' })).join('\n'),
  );
  const task = ['task.name=jsonl', `task.path=${data}`, `task.valPath=${data}`];
  const options = `task.options={reward: module, module: ${reward}}`;
  const more = ['data.valMaxSamples=10', 'rollout.valKwargs.n=2', '--outcomes', file];
  const { status, stdout, told } = await start('eval', run, ...task, options, ...more);
  expect(status, told).toBe(0);
  const { tries } = JSON.parse(readFileSync(file, 'utf8')) as { tries: (number | null)[][] };
  const known = tries.filter((outcomes): outcomes is number[] => !outcomes.includes(null));
  expect(known.length % 10).not.toBe(0); // some are left out, some are not
  const { mean, low, high } = passInterval(known);
  expect(stdout).toContain(`${known.length} problems: pass@1 ${mean.toFixed(3)},`);
  expect(stdout).toContain(`over problems: ${low.toFixed(3)} to ${high.toFixed(3)}\n`);
  expect(stdout).toMatch(new RegExp(`left out, because an outcome is unknown: ${10 - known.length} more problems?\n`));
});

test('eval prints "unknown" if no outcome is known; of a run that was changed while it trained it says so', async () => {
  const reward = join(root, 'noOutcome.js');
  writeFileSync(reward, 'export default () => ({ score: 1, acc: NaN });');
  const changes = join(run, 'changes.jsonl');
  writeFileSync(changes, '{"step":1,"key":"lr","from":0.001,"to":0.01}\n');
  onTestFinished(() => rmSync(changes));
  const task = ['task.name=jsonl', 'task.path=examples/jsonl-task.jsonl'];
  const { status, stdout, told } = await start(
    'eval',
    run,
    ...task,
    `task.options={reward: module, module: ${reward}}`,
  );
  expect(status, told).toBe(0);
  expect(stdout).toMatch(/0 problems: pass@1 unknown, greedy unknown\n {2}left out/);
  expect(told).toContain(`${changes} has settings or rules that were changed while the run trained.`);
});

test('the outcomes of eval are in the order of the tries, not in that in which they end', async () => {
  const reward = join(root, 'reward.js');
  // A reward in which tries of odd length are right, and are scored much later than the others.
  writeFileSync(
    reward,
    `export default async ({ response }) => {
      const acc = response.length % 2;
      for (let ticks = 0; ticks < 10_000 * acc; ticks++) await undefined;
      return acc;
    };\n`,
  );
  const outcomesOf = async (n: number) => {
    const file = join(root, `outcomes-${n}.json`);
    const task = [
      'task.name=jsonl',
      'task.path=examples/jsonl-task.jsonl',
      `task.options={reward: module, module: ${reward}}`,
    ];
    const { status, told } = await start('eval', run, '--outcomes', file, ...task, `rollout.valKwargs.n=${n}`);
    expect(status, told).toBe(0);
    return (JSON.parse(readFileSync(file, 'utf8')) as { tries: number[][] }).tries;
  };
  const [one, many] = [await outcomesOf(1), await outcomesOf(32)];
  expect(many.map(([first]) => [first])).toEqual(one);
  expect(new Set(many.flat())).toEqual(new Set([0, 1]));
});

test('eval: a model that is given is evaluated instead of the run', async () => {
  const given = [['--model', 'checkpoints/gsm8k-tool'], ['model.path=checkpoints/gsm8k-tool']];
  for (const words of given)
    expect((await start('eval', run, ...words)).stdout).toMatch(/^ {2}checkpoints\/gsm8k-tool, 2 problems/m);
  const without = await start('eval', run, 'model.loraAdapterPath=nope');
  expect([without.status, without.told]).toEqual([2, expect.stringContaining('nope')]);
});

test('eval and generate take values that only training refuses', async () => {
  const length = ['data.maxResponseLength=300', 'actor.ppoMaxTokenLenPerGpu=256', 'reward.overlongBuffer.len=400'];
  for (const words of [['model.quantization=int8'], length]) {
    const evaluated = await start('eval', run, ...words);
    expect(evaluated.status, evaluated.told).toBe(0);
  }
  const words = ['--quantization', 'int8'];
  const { status, told } = await start('generate', '--model', run, ...PROMPT, ...words);
  expect(status, told).toBe(0);
  expect(told).toContain('tools: calculator');
  expect((await start('train', run, 'model.quantization=int8')).told).toContain(
    'model.quantization is "int8", which freezes the weights. Set model.loraRank (for example 16)',
  );
});

const parity = join(root, 'parity.js');
/** A task whose outcome is the parity of a response's length. */
const PARITY = [
  ...['task.name=jsonl', 'task.path=examples/jsonl-task.jsonl', 'rollout.valKwargs.n=16'],
  `task.options={reward: module, module: ${parity}}`,
];
const PROMPT = ['--prompt', 'Tom has 3 apples.', '--json'];
const tokensOf = (_: string, stdout: string) => (JSON.parse(stdout) as { tokenIds: number[] }).tokenIds;
/** Returns the digest of the last 64 KiB of a file, which are weights. */
const weightsIn = (...names: string[]) =>
  createHash('sha256')
    .update(readFileSync(join(...names)).subarray(-65_536))
    .digest('hex');
/** Commands that read weights: their arguments, and the part of what they write or print that depends on the weights. */
const OF_WEIGHTS: Record<
  string,
  [args: (path: string, out: string) => string[], read: (out: string, stdout: string) => unknown]
> = {
  eval: [(path, out) => ['eval', path, '--outcomes', out, ...PARITY], (out) => readFileSync(out, 'utf8')],
  'eval --model': [
    (path, out) => ['eval', 'configs/gsm8k-tool.yaml', '--model', path, '--outcomes', out, ...PARITY],
    (out) => readFileSync(out, 'utf8'),
  ],
  generate: [(path) => ['generate', '--model', path, ...PROMPT], tokensOf],
  'generate --raw': [(path) => ['generate', '--model', path, ...PROMPT, '--raw'], tokensOf],
  merge: [
    (path, out) => ['merge', '--model', path, '--out', out, '--dtype', 'float32'],
    (out) => weightsIn(out, 'model.safetensors'),
  ],
  'export trl': [
    (path, out) => ['export', 'trl', path, '--out', out],
    (out) => weightsIn(out, 'model', 'model.safetensors'),
  ],
  'export verl': [
    (path, out) => ['export', 'verl', path, '--out', out],
    (out) => weightsIn(out, 'model', 'model.safetensors'),
  ],
  'export gguf': [
    (path, out) => ['export', 'gguf', path, '--out', `${out}.gguf`, '--dtype', 'float32'],
    (out) => weightsIn(`${out}.gguf`),
  ],
};

/** Commands that open the model as another one here does. They run with --full. */
const ALIKE = ['generate --raw', 'export verl', 'eval --model'];

// webgrpo score opens its device without an engine: test/gpu/trainCommand.node.test.ts.
test.each(Object.keys(OF_WEIGHTS).filter((name) => isFull || !ALIKE.includes(name)))(
  '%s: a run and its config are its newest checkpoint',
  async (name) => {
    const readBy = async (path: string) => {
      const [args, read] = OF_WEIGHTS[name];
      const out = join(mkdtempSync(join(root, 'out-')), 'out');
      const { status, stdout, told } = await start(...args(path, out));
      expect(status, told).toBe(0);
      return read(out, stdout);
    };
    const newest = await readBy(join(run, 'checkpoints', 'step-2'));
    expect(await readBy(run)).toEqual(newest);
    if (isFull) expect(await readBy(config)).toEqual(newest);
    expect(await readBy(checkpoint)).not.toEqual(newest);
  },
);

/** Commands that read the files of a run folder. */
test.each([
  'replay --algorithm cispo',
  'replay --reward examples/replay-reward.js',
  'simulate --devices 1',
  'profile',
  'report',
  'doctor',
])('%s: the same output for any path of the run', async (line) => {
  const [command, ...words] = line.split(' ');
  const readBy = async (path: string) => {
    const { status, stdout, told } = await start(command, path, ...words, '--json');
    expect(status, told).toBe(0);
    return stdout;
  };
  const ofRun = await readBy(run);
  expect(ofRun.length).toBeGreaterThan(2);
  for (const path of isFull ? [config, checkpoint] : [checkpoint]) expect(await readBy(path)).toBe(ofRun);
});

test('replay has no memory for the state of an optimizer', async () => {
  const plans: string[][] = [];
  const create = scriptedEngines()!;
  const createEngine = (spec: EngineSpec) => {
    plans.push(planMemory(spec).map(({ name }) => name));
    return create(spec);
  };
  const { status, said } = await webgrpo(['replay', run, '--algorithm', 'cispo'], { createEngine });
  expect(status, said.join('\n')).toBe(0);
  expect(plans).toEqual([expect.arrayContaining(['weights', 'gradients'])]);
  expect(plans[0]).not.toContain('AdamW moments');
});

test('serve: a run folder is resumed, a checkpoint is resumed from, a config starts again', async () => {
  const copy = join(root, 'served', 'run');
  mkdirSync(join(root, 'served'));
  cpSync(run, copy, { recursive: true });
  const said = async (path: string, ...words: string[]) => {
    const args = ['serve', path, '--port', '0', 'trainer.totalTrainingSteps=3', ...words];
    const command = new RunningCommand(args, { createEngine: scriptedEngines() });
    const [, url] = await command.said(/serving \S+ at (\S+)\/v1 /);
    await fetch(`${url}/v1/status`); // the run handles signals once its server answers
    command.signal('SIGINT');
    return (await command.done).said.join('\n');
  };
  expect(await said(copy)).toMatch(/resumed from step 2/);
  expect(await said(join(copy, 'checkpoints', 'step-1'))).toMatch(/resumed from step 1/);
  const again = await said(join(copy, 'config.yaml'), 'name=again');
  expect(again).toContain(`starts again from the run's start model. To resume the run instead, give ${copy}.`);
  expect(again).not.toMatch(/resumed from/);
});

test('train: a run folder is resumed, wherever it is; a checkpoint is resumed from; a config starts again', async () => {
  const moved = join(root, 'elsewhere', 'moved');
  mkdirSync(join(root, 'elsewhere'));
  cpSync(run, moved, { recursive: true });
  addRemovedKey(moved);
  const resumed = await start('train', moved, 'trainer.totalTrainingSteps=3');
  expect(resumed.status, resumed.told).toBe(0);
  expect(resumed.told).toContain(
    'config.yaml sets rollout.asyncScheduling, which was removed and is ignored. Delete it;',
  );
  expect(resumed.told).toMatch(/up to 2:\n {2}trainer\.totalTrainingSteps: 2 -> 3\n\S/);
  expect(readFileSync(join(moved, 'config.yaml'), 'utf8')).not.toContain('asyncScheduling');
  expect(stepsOf(moved)).toEqual([1, 2, 3]);
  expect(existsSync(`${moved}-1`)).toBe(false);
  const from = await start('train', join(moved, 'checkpoints', 'step-1'), 'trainer.totalTrainingSteps=2');
  expect(from.told).toMatch(/resumed from step 1/);
  expect(from.told).toContain('the logs of 2 later steps were deleted, because the run repeats them');
  const again = await start('train', join(moved, 'config.yaml'), 'trainer.totalTrainingSteps=1', 'name=again');
  expect(again.told).toContain(
    `config.yaml is only the config: training starts again from the run's start model. To resume the run instead, give ${moved}.`,
  );
  expect(again.told).not.toMatch(/resumed from/);
  expect(stepsOf(join(root, 'elsewhere', 'again'))).toEqual([1]);
});

test('compare: a complete run is not run again if its config has a removed key, a rate that it set and sizes that it lowered', async () => {
  const out = mkdtempSync(join(root, 'compared-'));
  const lowered = ['model.lowerToFit=[rollout.maxNumSeqs]', 'rollout.maxNumSeqs=64'];
  const settings = ['trainer.totalTrainingSteps=1', 'actor.optim.lr=auto', ...lowered];
  const args = ['compare', run, '--algorithms', 'grpo', '--seeds', '1', '--out', out, ...settings];
  const first = await start(...args);
  expect(first.status, first.told).toBe(0);
  expect(first.stdout).toMatch(/^\| grpo \| [^|]+ \| 1 /m);
  const path = join(out, 'grpo-seed-1', 'config.yaml');
  const written = readFileSync(path, 'utf8');
  expect(written).not.toContain('lr: auto');
  writeFileSync(path, written.replace('maxNumSeqs: 64', 'maxNumSeqs: 32'));
  addRemovedKey(join(out, 'grpo-seed-1'));
  const { told } = await start(...args);
  expect(told).toContain('run 1/1: grpo-seed-1 is complete');
  const table = () => readFileSync(join(out, 'compare.md'), 'utf8');
  expect(table()).toMatch(/; pass@1 of 2 held-out problems\. [^]*\| \d\.\d+ to \d\.\d+ \|/);
  const filtered = await start(...args, 'actor.optim.lr=1e-4', 'data.filterOverlongPrompts=true');
  expect(filtered.told).not.toContain('is complete');
  expect(table()).not.toMatch(/held-out problem|\| \d\.\d+ to \d\.\d+ \|/); // the number of evaluated problems is unknown
});

test('compare: Ctrl-C in the last evaluation of a run ends the comparison, and the same command evaluates that run', async () => {
  const out = mkdtempSync(join(root, 'compared-'));
  const args = ['compare', run, '--algorithms', 'grpo', '--seeds', '2', '--out', out, 'trainer.totalTrainingSteps=1'];
  const gate = new TestGate();
  gate.upTo(0);
  const compared = new RunningCommand(args, { createEngine: scriptedEngines(gate) });
  await gate.held('update');
  gate.upTo(0, 'turn');
  gate.upTo(Infinity);
  await gate.held('turn');
  compared.signal('SIGINT');
  gate.open();
  expect([(await compared.done).status, existsSync(join(out, 'grpo-seed-2'))]).toEqual([3, false]);
  const { status, stdout, told } = await start(...args);
  expect([status, metricsIn(join(out, 'grpo-seed-1')).length], told).toEqual([0, 1]);
  expect(stdout).toMatch(/^\| grpo \| [^|]+ \| 2 \| - \| 0\.\d+ \(/m);
  expect(metricsIn(join(out, 'grpo-seed-1'))[0]).toHaveProperty('timing_s/testing');
});

test('compare: a run of other files of the task or of --import is run again', async () => {
  const out = mkdtempSync(join(root, 'compared-'));
  const reward = join(out, 'reward.js');
  const task = ['task.name=jsonl', 'task.path=examples/jsonl-task.jsonl'];
  const options = `task.options={reward: module, module: ${reward}}`;
  const settings = ['trainer.totalTrainingSteps=1', ...task, options];
  const compared = async (score: string, ...more: string[]) => {
    writeFileSync(reward, `export default ({ response }) => ${score};`);
    const { told } = await start(
      'compare',
      run,
      '--algorithms',
      'grpo',
      '--seeds',
      '1',
      '--out',
      join(out, 'runs'),
      ...settings,
      ...more,
    );
    return told.includes('grpo-seed-1 is complete');
  };
  expect([await compared('response.length'), await compared('response.length')]).toEqual([false, true]);
  expect([await compared('-response.length'), await compared('-response.length')]).toEqual([false, true]);
  const imported = join(out, 'imported.js');
  const withImport = (text: string) => {
    writeFileSync(imported, `export default ({ registerRecipe }) => registerRecipe('own', {}); // ${text}`);
    return compared('-response.length', '--import', imported);
  };
  expect([await withImport('a'), await withImport('a'), await withImport('b')]).toEqual([false, true, false]);
});

test('a folder or config that is not of a run ends in a sentence', async () => {
  const empty = mkdtempSync(join(root, 'empty-'));
  const of = async (...args: string[]) => (await start(...args)).told;
  for (const command of ['eval', 'train', 'compare', 'serve', 'sft'])
    expect(await of(command, empty)).toContain(
      `${empty} is a folder without config.yaml. Give a config file or a run folder.`,
    );
  const recipe = 'configs/gsm8k-sft.yaml';
  for (const command of ['eval', 'train', 'serve'])
    expect(await of(command, recipe)).toContain(
      `${recipe} is the config of supervised training. Start it with webgrpo sft,`,
    );
  expect(await of('sft', run)).toContain(`${config} is the config of GRPO training. Start it with webgrpo train.`);
  for (const args of [
    ['generate', '--prompt', 'x'],
    ['merge', '--out', join(root, 'x')],
  ])
    expect(await of(...args, '--model', recipe)).toContain(
      `${recipe} is a config, not a model. Train it, then give the run folder.`,
    );
});

test.each([
  ['.', run, undefined],
  ['config.yaml', run, undefined],
  ['../tiny', run, undefined],
  ['checkpoints/..', run, undefined],
  ['checkpoints/step-1', run, 'checkpoints/step-1'],
  ['step-1', join(run, 'checkpoints'), 'step-1'],
  ['.', checkpoint, '.'],
])('inside a run, the path %s names it', async (path, folder, model) => {
  const before = process.cwd();
  onTestFinished(() => process.chdir(before));
  process.chdir(folder);
  const named = runOf(path);
  expect([named && resolve(named.folder), named?.model]).toEqual([realpathSync(run), model ?? named?.folder]);
  const { overrides } = await openTraining(path, []);
  if (path !== 'config.yaml') expect(overrides.slice(0, 2).map((word) => word.split('=')[1])).toContain('"tiny"');
  const parent = overrides.find((word) => word.startsWith('trainer.defaultLocalDir='));
  if (parent) expect(resolve(JSON.parse(parent.split('=')[1]) as string)).toBe(realpathSync(root));
});

test('a folder with a config alone is not a run', () => {
  const folder = mkdtempSync(join(root, 'task-'));
  writeFileSync(join(folder, 'config.yaml'), 'name: x');
  expect(runOf(folder)).toBeUndefined();
  expect(modelOf('HuggingFaceTB/SmolLM2-135M')).toBe('HuggingFaceTB/SmolLM2-135M');
});

test('generate of a run answers with the tools of its task, in a chat too; /exit leaves the chat', async () => {
  const question = 'Tom has 3 apples and buys 4. How many has he?';
  for (const named of [
    ['--model', run],
    ['--config', config],
    ['--config', 'configs/gsm8k-tool.yaml'],
  ]) {
    const { status, told } = await start('generate', ...named, '--prompt', question, '--temperature', '0');
    expect(status, told).toBe(0);
    expect(told).toMatch(/task: gsm8k-tool, tools: calculator/);
  }
  const chat = new RunningCommand(['generate', '--model', run, '--chat', '--json'], {
    createEngine: scriptedEngines(),
  });
  chat.type('one\n/exit\ntwo\n');
  const { status, stdout, said } = await chat.done;
  expect(status, said.join('\n')).toBe(0);
  const { turns } = JSON.parse(stdout) as { turns: { messages: unknown[] }[] };
  expect(turns).toHaveLength(1);
  expect(turns[0].messages.length).toBeGreaterThan(0);
});

test.each([run, 'checkpoints/gsm8k-tool'])(
  'a chat with %s that ends before a question is a JSON object',
  async (model) => {
    const chat = new RunningCommand(['generate', '--model', model, '--chat', '--json'], {
      createEngine: scriptedEngines(),
    });
    chat.type('/exit\n');
    const { status, stdout } = await chat.done;
    expect([status, JSON.parse(stdout)]).toEqual([0, { turns: [] }]);
  },
);

test('--context sets the length of a chat with a task too', async () => {
  const lengths: number[] = [];
  const scripted = scriptedEngines()!;
  const createEngine: Io['createEngine'] = (spec) => {
    lengths.push(spec.maxPositions);
    return scripted(spec);
  };
  const chat = async (...words: string[]) => {
    const command = new RunningCommand(['generate', '--model', run, '--chat', ...words], { createEngine });
    command.type('one\n/exit\n');
    const { status, said } = await command.done;
    return [status, said.at(-1)];
  };
  expect((await chat('--context', '500'))[0]).toBe(0);
  expect(lengths).toEqual([500]);
  expect(await chat('--context', '96')).toEqual([
    2,
    '--context is "96"; allowed: a number from 161 to 512. Change it.',
  ]);
});

test('generate: a run whose task is gone answers without tools; a task that is named must open', async () => {
  const moved = join(mkdtempSync(join(root, 'moved-')), 'run');
  cpSync(run, moved, { recursive: true });
  const text = readFileSync(config, 'utf8').replace(
    /^task:\n {2}name: .*$/m,
    'task:\n  name: gsm8k\n  module: ./gone.mjs',
  );
  writeFileSync(join(moved, 'config.yaml'), text);
  const words = ['--prompt', 'x', '--max-new-tokens', '2'];
  const without = await start('generate', '--model', moved, ...words);
  expect(without.status, without.told).toBe(0);
  expect(without.told).toMatch(/answers without the tools of its task: task\.module: there is no file \.\/gone\.mjs/);
  const named = await start('generate', '--config', moved, ...words);
  expect([named.status, named.told]).toEqual([2, expect.stringMatching(/there is no file \.\/gone\.mjs/)]);
});
