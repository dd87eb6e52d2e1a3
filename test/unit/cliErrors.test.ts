/** Bad input, through the real command line: exit code 2, one sentence, nothing on standard output, nothing written. */

import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { bundle } from '../../scripts/lib/bundle.mjs';

const CONFIG = 'configs/gsm8k-tool.yaml';
const folder = mkdtempSync(join(tmpdir(), 'webgrpo-errors-'));
const runs = join(folder, 'runs');

// Builds the bundle once, before the clocks of the tests run.
beforeAll(() => void execFileSync(process.execPath, ['scripts/webgrpo.mjs', '--help'], { stdio: 'ignore' }), 60_000);

function webgrpo(...args: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['scripts/webgrpo.mjs', ...args], {
    encoding: 'utf8',
  });
  const said = stderr.split('\n').filter((line) => line !== '' && !line.startsWith('setup: '));
  return { status, stdout, said };
}

/** A copy of a tiny checkpoint with the task's tokenizer beside it. */
function checkpoint(name: string): string {
  const path = join(folder, name);
  cpSync('test/fixtures/tiny-qwen2', path, { recursive: true });
  for (const file of ['tokenizer.json', 'tokenizer_config.json'])
    cpSync(`checkpoints/gsm8k-tool/${file}`, join(path, file));
  return path;
}

function refused(args: string[], sentence: RegExp): void {
  const { status, stdout, said } = webgrpo(...args, `trainer.defaultLocalDir=${runs}`);
  expect(said.join('\n')).toMatch(sentence);
  expect(said).toHaveLength(1);
  expect(stdout).toBe('');
  expect(status).toBe(2);
  expect(existsSync(runs)).toBe(false);
}

test('an unknown key names the nearest known one', () =>
  refused(
    ['train', CONFIG, 'actor.ppoMinibatchSize=4'],
    /unknown key "actor\.ppoMinibatchSize"; did you mean "actor\.ppoMiniBatchSize"\?/,
  ));

test('a value out of range', () =>
  refused(['train', CONFIG, 'rollout.n=0'], /"rollout\.n" is 0; allowed: integer >= 1\.$/));

test('sizes that do not divide', () =>
  refused(['train', CONFIG, 'actor.ppoMiniBatchSize=5'], /does not divide .* the nearest that do are 4 and 8\.$/));

test('a missing config', () =>
  refused(['train', 'configs/nope.yaml'], /^Cannot read configs\/nope\.yaml: no such file\./));

test('no config at all', () => refused(['train'], /^Which config\? /));

test('a missing checkpoint', () =>
  refused(['train', CONFIG, 'model.path=nope'], /^The checkpoint folder nope does not exist; /));

test('a path to resume from that is missing, is nothing, or is no checkpoint of a training run', () => {
  const mode = 'trainer.resumeMode=resume_path';
  refused(['train', CONFIG, mode], /trainer\.resumeFromPath is missing; set it to a checkpoint or run folder, /);
  refused(
    ['train', CONFIG, mode, 'trainer.resumeFromPath=nope'],
    /^trainer\.resumeFromPath: nope does not exist; give /,
  );
  refused(
    ['train', CONFIG, mode, 'trainer.resumeFromPath=checkpoints/gsm8k-tool'],
    /checkpoints\/gsm8k-tool is no checkpoint of a training run, and holds none; give a folder such as /,
  );
});

test('keys of runs: modes, trackers and the best checkpoint', () => {
  refused(
    ['train', CONFIG, 'trainer.resumeMode=path'],
    /"trainer\.resumeMode" is "path"; allowed: disable \| auto \| resume_path\.$/,
  );
  refused(
    ['train', CONFIG, 'trainer.logger=[console, wandb]'],
    /"trainer\.logger" is .*; allowed: some of console, jsonl, csv, tensorboard\.$/,
  );
  refused(
    ['train', CONFIG, 'trainer.maxActorCkptToKeep=0'],
    /"trainer\.maxActorCkptToKeep" is 0; allowed: integer >= 1\.$/,
  );
  refused(['train', CONFIG, 'trainer.greaterIsBetter=true'], /trainer\.metricForBestModel .* is not set; /);
});

test('an unknown command', () => refused(['trian'], /^Unknown command "trian"; did you mean "train"\?/));

test('an unknown option', () =>
  refused(['train', CONFIG, '--fast'], /^Unknown option '--fast'; known options: --json, --import, --help\.$/));

test('malformed JSONL names its line', () => {
  const path = join(folder, 'train.jsonl');
  const good = JSON.stringify({ question: '1 + 1?', answer: 'It is <<1+1=2>>2.\n#### 2' });
  writeFileSync(path, `${good}\n${good}\n{"question": \n`);
  refused(['train', CONFIG, `model.path=${checkpoint('a')}`, `task.path=${path}`], /train\.jsonl, line 3: /);
});

test('a checkpoint whose tensors do not fit its config names the tensor', () => {
  const path = checkpoint('b');
  const config = JSON.parse(readFileSync(join(path, 'config.json'), 'utf8')) as Record<string, number>;
  writeFileSync(
    join(path, 'config.json'),
    JSON.stringify({ ...config, intermediate_size: config['intermediate_size'] + 1 }),
  );
  refused(['train', CONFIG, `model.path=${path}`], /tensor "model\.layers\.0\.mlp\.\w+\.weight" has shape/);
});

test('a checkpoint that is cut short', () => {
  const path = checkpoint('c');
  const bytes = readFileSync(join(path, 'model.safetensors'));
  writeFileSync(join(path, 'model.safetensors'), bytes.subarray(0, bytes.length - 100));
  refused(['train', CONFIG, `model.path=${path}`], /model\.safetensors/);
});

test('a tokenizer with more tokens than the model has rows', () => {
  const { said, status } = webgrpo('train', CONFIG, `model.path=${checkpoint('d')}`, `trainer.defaultLocalDir=${runs}`);
  expect(said.at(-1)).toMatch(/the tokenizer has 512 tokens but the model 53 rows; they are not of one model\.$/);
  expect(status).toBe(2);
  expect(existsSync(runs)).toBe(false);
});

test('a prompt longer than the limit, before anything is made', () => {
  const { said, status } = webgrpo('train', CONFIG, 'data.maxPromptLength=24', `trainer.defaultLocalDir=${runs}`);
  expect(said.at(-1)).toMatch(/^Problem "held-out-\d+" has a prompt of \d+ tokens, but at most 24 fit /);
  expect(status).toBe(2);
  expect(existsSync(runs)).toBe(false);
});

test('a driver that is not there', () => {
  const env = { ...process.env, VK_ICD_FILENAMES: '/nowhere/icd.json' };
  const { status, stderr } = spawnSync(process.execPath, ['scripts/webgrpo.mjs', 'train', CONFIG], {
    encoding: 'utf8',
    env,
  });
  // Only Vulkan reads the variable: elsewhere a GPU is found all the same, and the run is refused later or starts.
  if (process.platform !== 'linux') return;
  expect(stderr).toMatch(/VK_ICD_FILENAMES is "\/nowhere\/icd\.json", but Dawn finds no adapter through it; /);
  expect(status).toBe(2);
});

test.runIf(process.platform === 'linux')(
  'a machine without an adapter: it is no bad input, and nothing else is said',
  async () => {
    const main = join(await bundle(process.cwd()), 'bin.js');
    const env = { ...process.env, VK_ICD_FILENAMES: '/nowhere/icd.json' };
    for (const args of [
      ['eval', CONFIG],
      ['train', CONFIG, `trainer.defaultLocalDir=${runs}`],
      ['sft', 'configs/gsm8k-sft.yaml', `trainer.defaultLocalDir=${runs}`],
      ['generate', '--model', 'checkpoints/gsm8k-tool', '--prompt', 'x'],
    ]) {
      const { status, stdout, stderr } = spawnSync(process.execPath, [main, ...args], { encoding: 'utf8', env });
      // Vulkan's loader has warnings of its own before it.
      expect(stderr).toMatch(/^WebGPU found no adapter\. [^\n]*\n$/m);
      expect(stderr).not.toMatch(/^(model|memory plan|warm start|an earlier run)/m);
      expect(stdout).toBe('');
      expect(status).toBe(1);
    }
    expect(existsSync(runs)).toBe(false);
  },
);

test('help and version', () => {
  const version = (JSON.parse(readFileSync('package.json', 'utf8')) as { version: string }).version;
  for (const flag of ['--version', '-V']) expect(webgrpo(flag)).toMatchObject({ status: 0, stdout: `${version}\n` });
  expect(webgrpo('help', 'train').stdout).toBe(webgrpo('train', '--help').stdout);
  expect(webgrpo('help', 'train').stdout).toMatch(/^webgrpo train: /);
  expect(webgrpo('help', 'trian').said).toEqual(['Unknown command "trian"; did you mean "train"? See --help.']);
});

test('a word for robustness that is none', () => {
  const env = { ...process.env, WEBGRPO_ROBUSTNESS: 'no' };
  const args = ['scripts/webgrpo.mjs', 'train', CONFIG, `trainer.defaultLocalDir=${runs}`];
  const { status, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', env });
  expect(stderr.trimEnd().split('\n').at(-1)).toMatch(/^WEBGRPO_ROBUSTNESS is "no"; allowed: on .* and off\./);
  expect(status).toBe(2);
  expect(existsSync(runs)).toBe(false);
});

test('a result for programs stands alone on standard output', () => {
  const { status, stdout } = webgrpo('config', 'trainer', '--json');
  expect(status).toBe(0);
  expect((JSON.parse(stdout) as { path: string }[]).map(({ path }) => path)).toContain('trainer.testFreq');
});
