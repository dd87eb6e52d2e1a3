/** Tests `webgrpo init`: the folder is complete, its own test passes, and existing files are kept. */

import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, promises, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { writeTask } from '../../src/cli/commands/init.ts';
import { diskFiles } from '../../src/cli/diskFiles.ts';
import { type StartModel, TEMPLATES } from '../../src/cli/init/templates.ts';
import { startedIn } from '../../src/cli/process/startedAs.ts';
import { parseSftConfig } from '../../src/extensions/sft/text.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/text.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { parseHermes } from '../../src/rollout/tools/parser.ts';
import type { FileSystem } from '../../src/runs/fileSystem.ts';
import { keyedRng } from '../../src/tasks/random.ts';
import { exampleOf, taskTokenizer } from '../../src/extensions/sft/taskExamples.ts';
import type { Task } from '../../src/tasks/task.ts';
import { metricsIn, scriptedEngines, webgrpo } from '../commandLine.ts';

const toolsOf = ({ tools, environments = [] }: Task) => [...(tools ?? []), ...environments.flatMap((one) => one.tools)];
const root = mkdtempSync(join(tmpdir(), 'webgrpo-init-'));
/** Returns a file system whose paths are relative to `root`, as for a user who works in that folder. */
const below = (files: FileSystem): FileSystem => ({
  ...files,
  exists: (path) => files.exists(join(root, path)),
  list: (path) => files.list(join(root, path)),
  writeFolder: (path, content) => files.writeFolder(join(root, path), content),
});
const files = below(diskFiles());
const write = (name: string, template = 'tool', model?: StartModel) =>
  writeTask(files, name, template, 'npx webgrpo', model);

test.each(Object.keys(TEMPLATES))(
  'the template %s: its config is one, its test passes with nothing installed',
  async (template) => {
    const name = `1e5-${template}`;
    const written = await write(name, template);
    const folder = join(root, name);
    expect(readdirSync(folder).sort()).toEqual(written.toSorted());
    for (const file of written) expect(readFileSync(join(folder, file), 'utf8')).not.toContain('my-task');
    const text = readFileSync(join(folder, 'config.yaml'), 'utf8');
    expect(parseTrainConfig(text, { source: 'config.yaml' }).name).toBe(name);
    expect(readFileSync(join(folder, 'README.md'), 'utf8').trim().split('\n').length).toBeLessThanOrEqual(10);
    const { NODE_OPTIONS: _, NODE_TEST_CONTEXT: __, ...env } = process.env;
    const { status, stdout } = spawnSync(process.execPath, ['--test'], { cwd: folder, encoding: 'utf8', env });
    expect(status, stdout).toBe(0);
    expect(stdout).toMatch(/pass [23]\b/);
  },
);

const LARGE = { path: 'HuggingFaceTB/SmolLM2-135M-Instruct', isLarge: true };

test.each(Object.keys(TEMPLATES))(
  'the template %s for a large model: adapters, its rate and limits, and the call explained',
  async (template) => {
    const name = `large-${template}`;
    const written = await write(name, template, LARGE);
    const text = readFileSync(join(root, name, 'config.yaml'), 'utf8');
    const { model, actor, data, rollout, task } = parseTrainConfig(text, { source: 'config.yaml' });
    expect(readFileSync(join(root, name, 'README.md'), 'utf8')).toContain(
      `# train: starts from ${LARGE.path}; then open`,
    );
    expect(model).toMatchObject({ path: LARGE.path, loraRank: 32, enableGradientCheckpointing: true });
    expect([actor.optim.lr, data.maxResponseLength, rollout.maxNumSeqs]).toEqual([2e-5, 512, 32]);
    const told = written.includes('task.mjs')
      ? readFileSync(join(root, name, 'task.mjs'), 'utf8')
      : String(task.options['systemPrompt']);
    expect(told).toContain('write <tool_call>{"name": "calculator", "arguments": {"expression": "12+30"}}</tool_call>');
    if (!written.includes('task.mjs')) return;
    const { default: made } = (await import(join(root, name, 'task.mjs'))) as { default: Task };
    expect((await made.train(0, 1)).messages.map(({ role }) => role)).toEqual(['system', 'user']);
  },
);

test.each(Object.keys(TEMPLATES).filter((template) => 'sft.yaml' in TEMPLATES[template].files))(
  'the template %s: its warm start imitates calls that its own tools answer, and mistakes that earn nothing',
  async (template) => {
    const name = `warm-${template}`;
    await write(name, template, { path: 'sft.yaml', isLarge: false });
    const folder = join(root, name);
    const config = parseTrainConfig(readFileSync(join(folder, 'config.yaml'), 'utf8'), { source: 'config.yaml' });
    expect([config.model.path, config.trainer.totalTrainingSteps]).toEqual(['sft.yaml', 40]);
    const readme = readFileSync(join(folder, 'README.md'), 'utf8');
    expect(readme).toContain(
      '# train: a new small model imitates demonstrate() of task.mjs, then GRPO improves it; then open',
    );
    expect(readme).not.toMatch(/shipped model|With tools of your own|within a minute/);
    const sft = parseSftConfig(readFileSync(join(folder, 'sft.yaml'), 'utf8'), { source: 'sft.yaml' });
    expect(sft).toMatchObject({ name: `${name}-sft`, task: { module: './task.mjs' } });
    const { default: task } = (await import(join(folder, 'task.mjs'))) as { default: Task };
    const tokenizerFiles = await taskTokenizer(task, sft.model.vocabSize);
    const tokenizer = new ChatTokenizer(tokenizerFiles.tokenizer, tokenizerFiles.config);
    for (let index = 0; index < 6; index++) {
      const { promptIds, responseIds } = await exampleOf(task, tokenizer, 1, index, index % 2);
      expect(promptIds.length + responseIds.length).toBeLessThanOrEqual(sft.data.maxLength);
      const isWrong = index % 2 === 1;
      const messages = await task.demonstrate!(await task.train(index, 1), keyedRng('x', index), index % 2);
      const calls = messages.flatMap(({ content }) => parseHermes(content, toolsOf(task)));
      expect(calls).toEqual(isWrong ? [] : [expect.objectContaining({ name: 'calculator' })]);
    }
  },
);

test('init tells what training starts from, and refuses a model that is not one', async () => {
  const said = async (...args: string[]) => {
    const name = `told-${args.length}`;
    const { stdout, said: lines } = await webgrpo(['init', name, ...args]);
    rmSync(name, { recursive: true, force: true });
    return stdout + lines.join('\n');
  };
  expect(await said()).toMatch(
    /knows one tool, "calculator"\.\n.*demonstrate\(\) in task\.mjs and model\.path: sft\.yaml/,
  );
  expect(await said('--model', 'sft.yaml')).toContain('a new small one, which first imitates demonstrate()');
  expect(await said('--model', LARGE.path)).toContain(`${LARGE.path} with adapters; the system message in task.mjs`);
  expect(await said('--model', 'checkpoints/gsm8k-tool')).toContain('the model:    ../checkpoints/gsm8k-tool.');
  expect(await said('--model', './nowhere')).toContain('The checkpoint folder ./nowhere does not exist.');
  expect(await said('--template', 'jsonl', '--model', 'sft.yaml')).toContain('The template jsonl has no sft.yaml.');
});

/** Trains two steps with the scripted engine, and returns the metrics from the run folder. */
async function trained(config: string, ...overrides: string[]): Promise<Metrics[]> {
  const kept = mkdtempSync(join(tmpdir(), 'webgrpo-init-run-'));
  const settings = [
    ...['name=run', `trainer.defaultLocalDir=${kept}`, 'trainer.totalTrainingSteps=2', 'trainer.testFreq=0'],
    ...['trainer.valBeforeTrain=false', 'trainer.kernelTuning=off', 'data.trainBatchSize=2'],
    'actor.ppoMiniBatchSize=2',
  ];
  const args = ['train', config, ...settings, ...overrides];
  const { status, said } = await webgrpo(args, { createEngine: scriptedEngines() });
  expect(status, said.join('\n')).toBe(0);
  return metricsIn(join(kept, 'run'));
}

// Every day, the example of docs/guides/tasks.md trains by a JSONL file.
const TRAINED = Object.keys(TEMPLATES).filter((template) => process.env['FULL_TESTS'] === '1' || template !== 'jsonl');
test.each(TRAINED)('the template %s trains, by its own problems', async (template) => {
  const written = await write(template, template);
  const source = written.includes('task.mjs') ? ['module', 'task.mjs'] : ['path', 'train.jsonl'];
  const config = join(root, template, 'config.yaml');
  const history = await trained(config, `task.${source[0]}=${join(root, template, source[1])}`);
  expect(history.map((metrics) => metrics['training/global_step'])).toEqual([1, 2]);
  for (const metrics of history) expect(metrics['critic/score/mean']).toBeGreaterThanOrEqual(0);
});

test('the example of docs/guides/tasks.md trains, its rewards from 0 to 1', async () => {
  const history = await trained('examples/jsonl-task.yaml');
  const rewards = history.map((metrics) => metrics['critic/score/mean']);
  expect(rewards).toHaveLength(2);
  expect(rewards.every((reward) => reward >= 0 && reward <= 1)).toBe(true);
});

test('existing files stay unchanged, but an empty folder is filled', async () => {
  mkdirSync(join(root, 'held'));
  writeFileSync(join(root, 'held', 'mine.txt'), 'x');
  writeFileSync(join(root, 'file'), 'x');
  mkdirSync(join(root, 'empty'));
  await expect(write('held')).rejects.toThrow(
    'The folder held exists already and contains mine.txt. Nothing was written. Choose another name.',
  );
  await expect(write('file')).rejects.toThrow('file exists already and is not a folder. Choose another name.');
  expect(readdirSync(join(root, 'held'))).toEqual(['mine.txt']);
  await write('empty');
  expect(readdirSync(join(root, 'empty'))).toContain('config.yaml');
});

test.each(['a/b c', '..', '.', '.hidden', '', 'a b', '../.x', 'a\0b', '\u00e4', 'x'.repeat(129), 'C:\\x'])(
  'the name %j is refused',
  async (name) => {
    const before = readdirSync(root);
    await expect(write(name)).rejects.toThrow(/^init: name is .*; allowed: letters, digits, \., _ and -, not starting/);
    expect(readdirSync(root)).toEqual(before);
  },
);

test('a path: the task has the name of its last folder', async () => {
  const written = await write('tasks/sums');
  expect(readdirSync(join(root, 'tasks', 'sums')).sort()).toEqual(written.toSorted());
  const text = readFileSync(join(root, 'tasks', 'sums', 'config.yaml'), 'utf8');
  expect(parseTrainConfig(text, { source: 'config.yaml' }).name).toBe('sums');
  expect(startedIn('tasks/sums', { WEBGRPO_CHECKOUT: process.cwd() })).toBe('node ../../scripts/webgrpo.mjs');
});

test('the written test compares what the model reads, so a tool may return any JSON value', async () => {
  await write('numbers');
  const file = join(root, 'numbers', 'task.mjs');
  const text = readFileSync(file, 'utf8');
  const returned = text.replace('return String({', 'return Number({');
  expect(returned).not.toBe(text);
  writeFileSync(file, returned);
  const { NODE_OPTIONS: _, NODE_TEST_CONTEXT: __, ...env } = process.env;
  const { status, stdout } = spawnSync(process.execPath, ['--test'], {
    cwd: join(root, 'numbers'),
    encoding: 'utf8',
    env,
  });
  expect(status, stdout).toBe(0);
});

test('an unknown template names the nearest', async () => {
  await expect(write('x', 'json')).rejects.toThrow(
    '--template is "json". Did you mean "jsonl"? There are tool, jsonl, environment.',
  );
  await expect(write('x', '__proto__')).rejects.toThrow(/--template is "__proto__"/);
});

test('a folder that cannot be written ends in an error, with no partial files', async () => {
  for (const at of [0, 2]) {
    let opened = 0;
    const refusing = diskFiles({
      ...promises,
      open: async (...args) => {
        if (opened++ === at) throw Object.assign(new Error('EACCES'), { code: 'EACCES' });
        return promises.open(...args);
      },
    });
    const before = readdirSync(root);
    await expect(writeTask(below(refusing), 'refused', 'tool', 'x')).rejects.toThrow(
      /^Cannot write .*refused: no permission\.$/,
    );
    expect(readdirSync(root)).toEqual(before);
  }
});

test('how webgrpo is started from the new folder: from a checkout, and installed', () => {
  expect(startedIn('my-task', { WEBGRPO_CHECKOUT: process.cwd() })).toBe('node ../scripts/webgrpo.mjs');
  expect(startedIn('my-task', { npm_command: 'exec' })).toBe('npx webgrpo');
});
