/** Tests bad input: exit code 2, one error message, nothing on standard output, nothing written. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, test, vi } from 'vitest';
import { webgrpo } from '../commandLine.ts';

const CONFIG = 'configs/gsm8k-tool.yaml';
const folder = mkdtempSync(join(tmpdir(), 'webgrpo-errors-'));
const runs = join(folder, 'runs');

/** Copies a tiny checkpoint and adds the tokenizer of the task. */
function checkpoint(name: string): string {
  const path = join(folder, name);
  cpSync('test/fixtures/tiny-qwen2', path, { recursive: true });
  for (const file of ['tokenizer.json', 'tokenizer_config.json'])
    cpSync(`checkpoints/gsm8k-tool/${file}`, join(path, file));
  return path;
}

async function refused(args: string[], sentence: RegExp, env: NodeJS.ProcessEnv = {}): Promise<void> {
  const { status, stdout, said } = await webgrpo([...args, `trainer.defaultLocalDir=${runs}`], { env });
  expect(said.join('\n')).toMatch(sentence);
  expect(said).toHaveLength(1);
  expect(stdout).toBe('');
  expect(status).toBe(2);
  expect(existsSync(runs)).toBe(false);
}

// The first test, because a process that has found its adapter looks for none again.
test.each([
  ['eval', CONFIG],
  ['train', CONFIG],
  ['sft', 'configs/gsm8k-sft.yaml'],
  ['generate', '--model', 'checkpoints/gsm8k-tool', '--prompt', 'x'],
])('a machine without an adapter is not bad input, and nothing else is printed: %s', async (command, ...words) => {
  vi.stubEnv('VK_ICD_FILENAMES', '/nowhere/icd.json');
  const settings = words.some((word) => word.endsWith('.yaml')) ? [`trainer.defaultLocalDir=${runs}`] : [];
  const { status, stdout, said } = await webgrpo([command, ...words, ...settings]);
  vi.unstubAllEnvs();
  expect(said).toEqual([
    expect.stringMatching(/^VK_ICD_FILENAMES names "\/nowhere\/icd\.json", which cannot be read\./),
  ]);
  expect([stdout, status, existsSync(runs)]).toEqual(['', 1, false]);
});

test('an unknown key names the nearest known one', () =>
  refused(
    ['train', CONFIG, 'actor.ppoMinibatchSize=4'],
    /unknown key "actor\.ppoMinibatchSize"\. Did you mean "actor\.ppoMiniBatchSize"\?/,
  ));

test('a value out of range', () =>
  refused(['train', CONFIG, 'rollout.n=0'], /"rollout\.n" is 0; allowed: integer >= 1\.$/));

test('sizes that do not divide', () =>
  refused(['train', CONFIG, 'actor.ppoMiniBatchSize=5'], /does not divide .* The nearest that do are 4 and 8\.$/));

test('a missing config', () =>
  refused(['train', 'configs/nope.yaml'], /^Cannot read configs\/nope\.yaml: no such file\./));

test.each(['examples/task-module.js', 'examples/jsonl-task.jsonl', 'README.md'])('%s is not a config', (file) =>
  refused(['train', file], /is not a config\. Give the YAML file that names it, such as config\.yaml\.$/),
);

test('no config at all', () => refused(['train'], /^No config or run folder was given\. /));

test('a missing checkpoint', () =>
  refused(['train', CONFIG, 'model.path=nope'], /^The checkpoint folder nope does not exist\. /));

test('supervised training of a checkpoint with too few positions, or of files of two models', async () => {
  const sft = (path: string, ...settings: string[]) => [
    'sft',
    'configs/gsm8k-sft.yaml',
    `model.path=${path}`,
    ...settings,
  ];
  await refused(
    sft('checkpoints/gsm8k-tool', 'data.maxLength=513'),
    /gsm8k-tool: the model has 512 positions, but data\.maxLength is 513\. Lower it\.$/,
  );
  await refused(
    sft(checkpoint('two')),
    /two: the tokenizer has 512 tokens, but the embedding of the model has 53 rows\. Use the files of one model\.$/,
  );
});

test('a path to resume from that is missing, empty, or not a checkpoint of a training run', async () => {
  const mode = 'trainer.resumeMode=resume_path';
  await refused(['train', CONFIG, mode], /trainer\.resumeFromPath is missing\. Set it to a checkpoint or run folder, /);
  await refused(
    ['train', CONFIG, mode, 'trainer.resumeFromPath=nope'],
    /^trainer\.resumeFromPath: nope does not exist\. Give /,
  );
  await refused(
    ['train', CONFIG, mode, 'trainer.resumeFromPath=checkpoints/gsm8k-tool'],
    /checkpoints\/gsm8k-tool is not a checkpoint of a training run and contains none\. Give a folder such as /,
  );
});

test('keys of runs: modes, trackers and the best checkpoint', async () => {
  await refused(
    ['train', CONFIG, 'trainer.resumeMode=path'],
    /"trainer\.resumeMode" is "path"; allowed: disable \| auto \| resume_path\.$/,
  );
  await refused(
    ['train', CONFIG, 'trainer.logger=[console, wandb]'],
    /"trainer\.logger" is .*; allowed: some of console, jsonl, csv, tensorboard\. For Weights & Biases /,
  );
  await refused(
    ['train', CONFIG, 'trainer.maxActorCkptToKeep=0'],
    /"trainer\.maxActorCkptToKeep" is 0; allowed: integer >= 1\.$/,
  );
  await refused(
    ['train', CONFIG, 'trainer.greaterIsBetter=true'],
    /trainer\.metricForBestModel\. Set both, or neither\./,
  );
});

test('an unknown command', () => refused(['trian'], /^Unknown command "trian"\. Did you mean "train"\?/));

test('an unknown option', () =>
  refused(
    ['train', CONFIG, '--fast'],
    /^Unknown option '--fast'\. Known options: --json, --import, --in, --dry-run, --help\.$/,
  ));

test('malformed JSONL names its line', async () => {
  const path = join(folder, 'train.jsonl');
  const good = JSON.stringify({ question: '1 + 1?', answer: 'It is <<1+1=2>>2.\n#### 2' });
  writeFileSync(path, `${good}\n${good}\n{"question": \n`);
  await refused(['train', CONFIG, `model.path=${checkpoint('a')}`, `task.path=${path}`], /train\.jsonl, line 3: /);
});

test('a checkpoint whose tensors do not fit its config names the tensor', async () => {
  const path = checkpoint('b');
  const config = JSON.parse(readFileSync(join(path, 'config.json'), 'utf8')) as Record<string, number>;
  writeFileSync(
    join(path, 'config.json'),
    JSON.stringify({ ...config, intermediate_size: config['intermediate_size'] + 1 }),
  );
  await refused(['train', CONFIG, `model.path=${path}`], /tensor "model\.layers\.0\.mlp\.\w+\.weight" has shape/);
});

test('a truncated checkpoint', async () => {
  const path = checkpoint('c');
  const bytes = readFileSync(join(path, 'model.safetensors'));
  writeFileSync(join(path, 'model.safetensors'), bytes.subarray(0, bytes.length - 100));
  await refused(['train', CONFIG, `model.path=${path}`], /model\.safetensors/);
});

test('a tokenizer with more tokens than the model has rows', async () => {
  const sentence =
    /the tokenizer has 512 tokens, but the embedding of the model has 53 rows\. Use the files of one model\.$/;
  await refused(['train', CONFIG, `model.path=${checkpoint('d')}`], sentence);
});

test('a prompt longer than the limit is refused before anything is created', () =>
  refused(
    ['train', CONFIG, 'data.maxPromptLength=24'],
    /^Problem "held-out-\d+" has a prompt of \d+ tokens, but at most 24 fit /,
  ));

// Only Vulkan reads VK_ICD_FILENAMES. On other systems than Linux, a GPU is found in spite of it.
test.runIf(process.platform === 'linux')('a missing driver', async () => {
  const env = { ...process.env, VK_ICD_FILENAMES: '/nowhere/icd.json' };
  const child = spawn(process.execPath, ['scripts/webgrpo.mjs', 'train', CONFIG], { env });
  const [stderr, [status]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
  expect(stderr).toMatch(/VK_ICD_FILENAMES is "\/nowhere\/icd\.json", but Dawn finds no adapter through it\. /);
  expect(status).toBe(2);
});

// Only Linux has a file that is always full.
test.runIf(process.platform === 'linux')('a result that cannot be written is a failure', async () => {
  const child = spawn('sh', [
    '-c',
    'exec "$0" scripts/webgrpo.mjs config trainer --json > /dev/full',
    process.execPath,
  ]);
  const [stderr, [status]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
  expect(stderr).toMatch(/^The output could not be written: ENOSPC.*\. Free space, or write it elsewhere\.$/m);
  expect(status).toBe(1);
});

test('help and version', async () => {
  const version = (JSON.parse(readFileSync('package.json', 'utf8')) as { version: string }).version;
  const printed = async (...args: string[]) => (await webgrpo(args)).stdout;
  for (const flag of ['--version', '-V'])
    expect(await webgrpo([flag])).toEqual({ status: 0, stdout: `${version}\n`, said: [] });
  expect(await printed('help', 'train')).toBe(await printed('train', '--help'));
  expect(await printed('help', 'train')).toMatch(/^webgrpo train: /);
  expect((await webgrpo(['help', 'trian'])).said).toEqual([
    'Unknown command "trian". Did you mean "train"? See --help.',
  ]);
});

test('an invalid value for robustness', () =>
  refused(['train', CONFIG], /^WEBGRPO_ROBUSTNESS is "no"; allowed: on .* and off\./, { WEBGRPO_ROBUSTNESS: 'no' }));

test('a result for programs is the only text on standard output', async () => {
  const { status, stdout } = await webgrpo(['config', 'trainer', '--json']);
  expect(status).toBe(0);
  expect((JSON.parse(stdout) as { path: string }[]).map(({ path }) => path)).toContain('trainer.testFreq');
});

test.each<[string[], string | RegExp]>([
  [['actor.optim.lr'], 'The setting actor.optim.lr has no value. Write actor.optim.lr=VALUE, without spaces.'],
  [['actor.optim.lr', '1e-4'], 'The setting actor.optim.lr has no value. Write actor.optim.lr=VALUE, without spaces.'],
  [['rollout.n:4'], 'The setting rollout.n is "rollout.n:4". Write rollout.n=4, without spaces.'],
  [['+rollout.n=4'], 'The setting rollout.n is "+rollout.n=4". Write rollout.n=4, without spaces.'],
  [['--rollout.n=4'], 'rollout.n is written like an option, but is a setting. Write rollout.n=VALUE, without dashes.'],
  ...(process.platform === 'linux'
    ? [
        [
          ['trainer.defaultLocalDir=/proc/x'],
          /^The run folder \/proc\/x\/.* cannot be written \(ENOENT: .*\)\. Set trainer\.defaultLocalDir/,
        ] satisfies [string[], RegExp],
      ]
    : []),
  [
    ['trainer.defaultLocalDir=package.json/x'],
    /cannot be written \(ENOTDIR: .*\)\. Set trainer\.defaultLocalDir to a folder/,
  ],
  [
    [`name=${'a'.repeat(128)}`, `trainer.defaultLocalDir=${'b'.repeat(300)}`],
    /cannot be written \(ENAMETOOLONG: .*\)\. Set/,
  ],
  [['b.yaml'], /^One config or run folder is expected, but there are 2: /],
])('train CONFIG %j', async (words, sentence) => {
  const { status, said } = await webgrpo(['train', CONFIG, ...words]);
  expect([status, said.at(-1)]).toEqual([2, typeof sentence === 'string' ? sentence : expect.stringMatching(sentence)]);
});

const ofCommand = async (...words: string[]) => {
  const { status, stdout, said } = await webgrpo(words);
  return { status, stdout, said: said.join('\n') };
};

test('every command that reads no settings or no words refuses them', async () => {
  const { stdout } = await webgrpo(['help', '--markdown']);
  const rows = [...stdout.matchAll(/^\| \[(\w+)\]\(.*\| (yes)? ?\|$/gm)];
  const without = rows.filter(([, , settings]) => settings === undefined).map(([, name]) => name);
  expect(without).toHaveLength(13);
  for (const name of without) {
    const said = `${name} reads no settings, but got "seed=9". Leave it out; "webgrpo help ${name}" lists the flags.`;
    expect(await ofCommand(name, 'seed=9', 'rollout.n=2')).toEqual({ status: 2, stdout: '', said });
  }
  for (const name of ['generate', 'merge', 'score', 'tune']) {
    const said = `${name} reads only flags, but got "has". Quote a text of several words; "webgrpo help ${name}" lists the flags.`;
    expect(await ofCommand(name, 'has', '3', 'rollout.temperature=0')).toEqual({ status: 2, stdout: '', said });
  }
});

const MODEL = ['--model', 'checkpoints/gsm8k-tool'];
const out = join(folder, 'x.gguf');
const NATS = ['--nats', 'nats://a:b@host:4222', '--worker', 'c:d'];
test.each([
  [['generate', ...MODEL, '--prompt', 'x', '--context', '9'], '--context has no effect without --chat.'],
  [['export', 'gguf', 'runs/x', '--out', out, 'seed=2'], 'export gguf reads no settings, but got "seed=2".'],
  [['export', 'gguf', 'runs/x', '--out', out, '--config', CONFIG], '--config has no effect on a GGUF file, which'],
  [['replay', 'runs/x', '--reward', 'a.js', '--checkpoint', '1'], '--checkpoint has no effect with --reward, which'],
  [['replay', 'runs/x', '--reward', 'a.js', '--samples', '1'], '--samples has no effect with --reward, which'],
  [['verify', 'losses', 'x.json', '--kernels', folder], '--kernels has no effect on losses.'],
  [['room', CONFIG, '--trust-workers', '--second-share', '0.1'], '--second-share has no effect with --trust-workers.'],
  [['room', CONFIG, '--worker', 'c:d'], '--worker has no effect without --nats.'],
  [
    ['room', CONFIG, 'task.path=x.jsonl'],
    'task.path names files, programs or addresses, which workers of a room do not open.',
  ],
  [['room', CONFIG, ...NATS, '--host', '0.0.0.0'], '--host has no effect with --nats, whose server runs already.'],
  [
    ['compare', CONFIG, 'seed=7'],
    'compare sets seed in every run, but got 7. Give --seeds N instead, for the seeds 1 to N.',
  ],
  [
    ['compare', CONFIG, 'algorithm={name: rloo}'],
    'compare sets algorithm.name in every run, but got "rloo". Give --alg',
  ],
  [
    ['compare', CONFIG, 'trainer.resumeMode=auto'],
    'compare sets trainer.resumeMode in every run, but got "auto". Leave',
  ],
  [['compare', CONFIG, '--out', folder, 'trainer.defaultLocalDir=x'], '"x". Leave it or --out out.'],
  [['eval', CONFIG, ...MODEL, 'model.path=x'], 'Both --model and model.path are given. Leave one out.'],
  [
    ['eval', CONFIG, '--adapter', 'x', 'model.loraAdapterPath=x'],
    'Both --adapter and model.loraAdapterPath are given.',
  ],
  [['config', '--markdown', 'actor'], '--markdown prints all keys in one form. Leave out actor.'],
  [['config', '--peers', '--json'], '--peers prints all keys in one form. Leave out --json.'],
])('a flag or setting without effect is refused: %j', async (words, sentence) => {
  const { status, stdout, said } = await webgrpo(words);
  expect([status, stdout]).toEqual([2, '']);
  expect(said.at(-1)).toContain(sentence);
});
