import { mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync, appendFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { webgrpo } from '../commandLine.ts';
import { stalePackage } from '../../scripts/lib/packages.mjs';
import { readArgs } from '../../src/cli/args.ts';
import { configMarkdown, configText, peersMarkdown } from '../../src/cli/configDocs.ts';
import { quoted, startedAs } from '../../src/cli/process/startedAs.ts';
import { disk, readJsonFile, readText, shippedPath, writeWhole } from '../../src/cli/files.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { processIo, withIo } from '../../src/cli/process/io.ts';
import {
  Progress,
  repeatProgress,
  whileWorking,
  resolvedAlgorithm,
  say,
  sayProgress,
  stepLine,
  timeLeft,
} from '../../src/cli/run/progress.ts';
import { writeRunReport } from '../../src/cli/run/reports.ts';
import type { LoadedModel } from '../../src/cli/run/checkpoints.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';
import { withChatTemplate } from '../../src/cli/run/session.ts';
import { fixed, passAt1 } from '../../src/report/metricOf.ts';
import type { LoggedRollout } from '../../src/runs/rollouts.ts';
import { chartData, type RunReport } from '../../src/report/runReport.ts';
import { metricHint } from '../../src/report/metricDocs.ts';
import { summarizeRun, summaryTable } from '../../src/report/summary.ts';
import { ConfigError, InputError, oneLine, UserCodeError } from '../../src/errors.ts';
import { stub } from '../stub.ts';

const temporary = () => mkdtempSync(join(tmpdir(), 'webgrpo-cli-'));

const before = { 'training/global_step': 0, 'val-core/t/acc/mean@1': 0.25, 'val-core/t/acc/greedy': 0.125 };
const line = (step: number, more: Record<string, number> = {}) => ({
  'training/global_step': step,
  'critic/score/mean': step / 10,
  'actor/entropy': 1.5,
  'actor/ppo_kl': 0.001,
  'response_length/mean': 40,
  'tool_call_counts/mean': 2,
  'perf/throughput': 1234.5,
  'perf/generated_tokens': 100,
  'perf/trained_tokens': 90,
  'timing_s/step': 2,
  'timing_s/gen': 1.5,
  ...more,
});
const HISTORY = [before, line(1), line(2), line(3, { 'val-core/t/acc/mean@1': 0.75, 'timing_s/testing': 6 })];

const rollout = (step: number, content: string): LoggedRollout => ({
  step,
  group: 0,
  problem: 'p',
  answer: '4',
  score: 1,
  acc: 1,
  stopReason: 'completed',
  promptMessages: 1,
  numTurns: 1,
  numToolCalls: 0,
  responseTokens: 3,
  advantage: 0.5,
  messages: [
    { role: 'user', content: 'q' },
    { role: 'assistant', content },
  ],
});

test('flags, overrides and files are distinguished', () => {
  const specs = { json: { help: '' }, model: { value: 'FOLDER', help: '' } };
  const args = readArgs(['a.yaml', 'actor.optim.lr=1e-4', '--json', '--model', 'm=1/x'], specs);
  expect(args.positionals).toEqual(['a.yaml']);
  expect(args.overrides).toEqual(['actor.optim.lr=1e-4']);
  expect(args.flags).toMatchObject({ json: true, model: 'm=1/x' });
  const atHome = readArgs(['~/a.yaml', 'task.path=~/b', 'task.path=a~/b', '--model=~/m', '--json'], specs);
  expect(atHome.overrides).toEqual([`task.path=${homedir()}/b`, 'task.path=a~/b']);
  expect([atHome.positionals, atHome.flags['model']]).toEqual([['~/a.yaml'], `${homedir()}/m`]);
  expect(() => readArgs(['--nope'], specs)).toThrow(/'--nope'\. Known options: --json, --model\.$/);
  expect(() => readArgs(['--modle', 'x'], specs)).toThrow(/'--modle'\. Did you mean --model\? Known options: /);
  expect(() => readArgs(['--model'], specs)).toThrow(InputError);
});

test('files: one error message if they cannot be read, and written completely or not at all', async () => {
  const folder = temporary();
  await writeWhole(join(folder, 'a', 'b.json'), '{"x": 1');
  await expect(readJsonFile(join(folder, 'a', 'b.json'))).rejects.toThrow(/b\.json is not JSON: /);
  await expect(readText(join(folder, 'a', 'c.json'))).rejects.toThrow(/no such file\. That folder has b\.json\.$/);
  await expect(readText(join(folder, 'z', 'c.json'))).rejects.toThrow(/There is no folder .*z\.$/);
  await expect(readText(folder)).rejects.toThrow(/it is a folder/);
  await expect(readText(`${folder}/a\0b`)).rejects.toThrow(/: there is a NUL character in its name\. Remove it\.$/);
  await disk.writeFolder(
    join(folder, 'ckpt'),
    new Map([
      ['one', '1'],
      ['two', '2'],
    ]),
  );
  await disk.writeFolder(join(folder, 'ckpt'), new Map([['three', '3']]));
  expect(readdirSync(join(folder, 'ckpt'))).toEqual(['three']);
  expect(readdirSync(folder).sort()).toEqual(['a', 'ckpt']);
});

test('an earlier run is kept, and a resumed run drops the steps that it repeats', async () => {
  const path = join(temporary(), 'run');
  const first = await RunFolder.create(disk, path, { seed: 1 });
  expect(first.moved).toBeUndefined();
  for (const metrics of HISTORY) await first.folder.appendMetrics(metrics);
  appendFileSync(join(path, 'metrics.jsonl'), '{"training/global_step": 4, "cut'); // killed during a write
  expect(await first.folder.metrics()).toEqual(HISTORY);
  const resumed = await RunFolder.reopen(disk, path, 2, { seed: 1 });
  expect((await resumed.metrics()).map((m) => m['training/global_step'])).toEqual([0, 1, 2]);
  const second = await RunFolder.create(disk, path, { seed: 2 });
  expect(second.moved).toBe(`${path}-1`);
  expect((await RunFolder.create(disk, path, { seed: 3 })).moved).toBe(`${path}-2`);
  expect(readFileSync(join(`${path}-2`, 'config.yaml'), 'utf8')).toBe('seed: 2\n');
});

test('the summary counts each step once, and separates values before and after', () => {
  const summary = summarizeRun(HISTORY);
  expect(summary).toMatchObject({ steps: 3, tokensGenerated: 300, tokensTrained: 270 });
  expect(summary.passAt1).toEqual({ before: 0.25, after: 0.75 });
  expect(summary.greedy).toEqual({ before: 0.125, after: null });
  expect(summary.meanReward).toEqual({ first: 0.1, last: 0.3 });
  const many = Array.from({ length: 20 }, (_, i) => line(i + 1, { 'critic/score/mean': i }));
  expect(summarizeRun(many).meanReward).toEqual({ first: 0.5, last: 18.5 }); // the first and the last tenth
  expect(summary.seconds).toMatchObject({ generate: 4.5, evaluate: 6, update: 0 });
  expect(summaryTable(summary)).toContain('pass@1                     0.250     0.750');
  expect(summaryTable(summary)).toContain('  seconds: generate 4.5, evaluate 6.0');
  expect(summarizeRun([...HISTORY, line(4)]).passAt1, 'step 4 was not evaluated').toEqual({
    before: 0.25,
    after: null,
  });
  expect(summaryTable(summarizeRun([before, line(1)]))).toMatch(/^ +after 1 step {2}/m);
  const outside = { 'timing_s/tools': 0.25, 'timing_s/reward': 1 };
  expect(summaryTable(summarizeRun([line(1, outside)]))).toContain(
    '  seconds: generate 1.5 (tools 0.3, reward 1.0 of it)',
  );
});

test('the line about the algorithm has everything that is on, and nothing that is off', () => {
  const said = (algorithm: object, actor = {}) =>
    resolvedAlgorithm(
      resolveTrainConfig({
        name: 't',
        model: { path: 'x' },
        data: { maxPromptLength: 8, maxResponseLength: 8 },
        algorithm,
        actor,
      }),
    );
  expect(said({ name: 'dapo' })).toBe(
    'dapo, loss vanilla (clip 0.2 / 0.28, c 10), advantage grpo (scale group), token-mean, dynamic sampling on acc',
  );
  expect(said({ name: 'gspo' }, { useKlLoss: true, klLossCoef: 0.01, clipRatioHigh: 0.5 })).toBe(
    'gspo, loss gspo (clip 0.0003 / 0.5, c 3), advantage grpo (scale group), seq-mean-token-mean, KL loss k3 x 0.01',
  );
});

test('the progress line', () => {
  expect(timeLeft(HISTORY, 9)).toBeCloseTo(24, 9); // (3 x 2 + 6) / 3 per step, 6 steps left
  expect(timeLeft([before], 9)).toBeNaN();
  expect(passAt1(HISTORY[3])).toBe(0.75);
  expect(stepLine(line(1), 9, 125)).toBe('step 1/9  reward 0.100  kl 0.0010  entropy 1.500  tokens/s 1235  left 2:05');
  const cut = (share: number) => stepLine({ ...line(1), 'tools/cut_share': share }, 9, NaN);
  expect(cut(0)).toBe(stepLine(line(1), 9, NaN));
  expect(cut(0.25)).toContain('entropy 1.500  tools cut 0.25  tokens/s');
  // The printed line of a step contains pass@1 only if it was measured at this step.
  expect(stepLine(before, 9, NaN)).toBe('step 0/9  pass@1 0.250');
  expect(stepLine({ ...line(1), ...before, 'training/global_step': 1 }, 9, NaN)).toContain('pass@1 0.250');
  expect(stepLine({ ...line(1), 'actor/ppo_kl': -4e-8, 'actor/entropy': -0 }, 9, NaN)).toMatch(
    / {2}kl 0\.0000 {2}entropy 0\.000 /,
  );
  expect([-0.00005, -0.00004, -0.4, -0.5, -12].map((value) => fixed(value, 4))).toEqual([
    '-0.0001',
    '0.0000',
    '-0.4000',
    '-0.5000',
    '-12.0000',
  ]);
  expect([fixed(-0.4, 0), fixed(-10, 0)]).toEqual(['0', '-10']);
});

test('progress: on a terminal in one line, in a log after 30 s without a line', () => {
  let now = 1e6;
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
  onTestFinished(() => clock.mockRestore());
  const said = (isTTY: boolean) => {
    let text = '';
    withIo({ ...processIo, stderr: { isTTY, write: (more: string) => (text += more) } }, () => {
      now += 60_000;
      say('step 1');
      const progress = new Progress();
      for (let done = 0; done <= 4; done++, now += 12_000) sayProgress(progress.text(done, 4, 'problems'));
    });
    return text;
  };
  expect(said(false)).toBe('step 1\n3 of 4 problems, 0:12 left\n');
  expect(said(true).split('\r\x1b[K').slice(2)).toEqual([
    '0 of 4 problems',
    ...['1 of 4 problems, 0:36 left', '2 of 4 problems, 0:24 left', '3 of 4 problems, 0:12 left', '4 of 4 problems'],
  ]);
});

test('the report needs no other file, and its data cannot contain markup', async () => {
  const { folder } = await RunFolder.create(disk, join(temporary(), 'a<b'), { note: '</script>' });
  for (const metrics of HISTORY) await folder.appendMetrics(metrics);
  await folder.writeRollouts(1, [rollout(1, '<script>alert(1)</script>')]);
  await folder.writeRollouts(10, [rollout(10, 'late')]);
  await folder.writeRollouts(2, [rollout(2, 'early')]);
  expect((await folder.rollouts()).map(({ step }) => step)).toEqual([1, 2, 10]);
  const html = readFileSync(await writeRunReport(folder), 'utf8');
  expect(html).not.toMatch(/<[^>]* (src|href)=|https?:\/\/(?!www\.w3\.org|github\.com)/);
  expect(html).not.toContain('<script>alert');
  expect(html.match(/<\/script>/g)).toHaveLength(2);
  const data = JSON.parse(readFileSync(folder.file('report.json'), 'utf8')) as RunReport;
  expect(data).toMatchObject({ kind: 'run', title: 'a<b', config: 'note: </script>\n' });
  expect(data.summary).toBe(summaryTable(summarizeRun(HISTORY)));
  expect(data.charts).toEqual(chartData(HISTORY));
  expect(data.rollouts.map(({ step }) => step)).toEqual([1, 2, 10]);
  expect(data.rollouts[0].rollouts).toEqual([rollout(1, '<script>alert(1)</script>')]);
});

test('charts omit metrics that a run has not measured', () => {
  const charts = chartData(HISTORY);
  expect(charts.map(({ title }) => title)).not.toContain('gradient norm');
  expect(charts[0]).toEqual({
    title: 'held-out pass@1',
    hint: metricHint('val-core/t/acc/mean@1'),
    steps: [0, 3],
    series: [
      { label: 'sampled', values: [0.25, 0.75] },
      { label: 'greedy', values: [0.125, null] },
    ],
  });
  expect(chartData([{ 'training/global_step': 1, 'actor/entropy': NaN }])).toEqual([]);
});

test('docs/reference/from-trl-verl.md is the table that export and hints read', () => {
  const text = readFileSync('docs/reference/from-trl-verl.md', 'utf8');
  expect(text, 'run: npm run -s webgrpo -- config --peers > docs/reference/from-trl-verl.md').toBe(peersMarkdown());
});

test('docs/reference/cli.md is the table of commands', async () => {
  const printed = await webgrpo(['help', '--markdown']);
  expect(
    readFileSync('docs/reference/cli.md', 'utf8'),
    'run: npm run -s webgrpo -- help --markdown > docs/reference/cli.md',
  ).toBe(printed.stdout);
  const commands = [...printed.stdout.matchAll(/^\| \[(\w+)\]/gm)].map(([, name]) => name);
  expect([...printed.stdout.matchAll(/^## (.*)/gm)].map(([, title]) => title)).toEqual([
    'Output and exit codes',
    ...commands,
  ]);
  for (const name of commands) expect((await webgrpo(['help', name])).stdout).toMatch(`webgrpo ${name}: `);
});

test('docs/reference/config.md equals the text of the schemas', () => {
  expect(
    readFileSync('docs/reference/config.md', 'utf8'),
    'run: npm run -s webgrpo -- config --markdown > docs/reference/config.md',
  ).toBe(configMarkdown());
  expect(configText('actor.optim').keys.map(({ path }) => path)).toContain('actor.optim.lr');
  expect(() => configText('optimizer')).toThrow(
    /The config has no part "optimizer"\. There are train, sft, name, engine/,
  );
});

test('config lists the keys of every command that reads a YAML', () => {
  const { text, keys } = configText();
  expect(text).toMatch(/^webgrpo train:\nname: .*\n\nwebgrpo sft:\nname: /s);
  expect(keys).toContainEqual(expect.objectContaining({ command: 'sft', path: 'data.demonstrations.guessRate' }));
  expect(new Set(configText('sft').keys.map(({ command }) => command))).toEqual(new Set(['sft']));
  expect(configText('trainer').text.match(/trainer\.totalTrainingSteps/g)).toHaveLength(2);
});

test('suggested commands fit how the program was started', () => {
  expect(startedAs({ WEBGRPO_STARTED_AS: 'npm run -s webgrpo --' }, '/cache/bundle/main.js')).toBe(
    'npm run -s webgrpo --',
  );
  expect(startedAs({ npm_command: 'exec' }, '/home/me/.npm/_npx/1/node_modules/.bin/webgrpo')).toBe('npx webgrpo');
  expect(startedAs({ PATH: '/usr/bin' }, '/home/me/app/node_modules/.bin/webgrpo')).toBe('npx webgrpo');
  // npm adds a project's own programs to the PATH of its scripts, but not to the PATH of the user's shell.
  const script = '/home/me/app/node_modules/.bin/webgrpo';
  expect(startedAs({ PATH: '/home/me/app/node_modules/.bin:/usr/bin' }, script)).toBe('npx webgrpo');
  expect(startedAs({ PATH: '/usr/local/bin:/usr/bin' }, '/usr/local/bin/webgrpo')).toBe('webgrpo');
  expect(startedAs({ PATH: '/usr/bin' }, 'dist/cli/bin.js')).toBe('node dist/cli/bin.js');
  expect(['seed=2', 'rollout.stop=["a b"]', "name=it's"].map(quoted)).toEqual([
    'seed=2',
    `'rollout.stop=["a b"]'`,
    `'name=it'\\''s'`,
  ]);
});

test('set-up: npm ci runs only when an installed package is not the locked one', async () => {
  const root = temporary();
  const lock = (packages: unknown) => JSON.stringify({ packages });
  writeFileSync(join(root, 'package-lock.json'), lock({ '': {}, 'node_modules/a': { version: '1.0.0' } }));
  expect(stalePackage(root, { dev: true })).toBe('not installed');
  await writeWhole(join(root, 'node_modules/.package-lock.json'), lock({ 'node_modules/a': { version: '1.0.0' } }));
  expect(stalePackage(root, { dev: true })).toBe('');
  const two = { 'node_modules/a': { version: '1.1.0' }, 'node_modules/b': { version: '2.0.0', optional: true } };
  writeFileSync(join(root, 'package-lock.json'), lock(two));
  expect(stalePackage(root, { dev: true })).toBe('a is 1.0.0, locked 1.1.0');
  const forTests = { 'node_modules/a': { version: '1.0.0' }, 'node_modules/b': { version: '2.0.0', dev: true } };
  writeFileSync(join(root, 'package-lock.json'), lock(forTests));
  expect(stalePackage(root, { dev: true })).toBe('b is missing, locked 2.0.0');
  expect(stalePackage(root, { dev: false })).toBe('');
});

test('a run installs no peer of the tests or the benchmark, and neither linters nor test runners', () => {
  const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8')) as {
    packages: Record<string, { dev?: boolean }>;
  };
  const forRuns = Object.keys(packages).filter((path) => path.startsWith('node_modules/') && !packages[path].dev);
  expect(forRuns).toContain('node_modules/webgpu');
  expect(forRuns).toContain('node_modules/vite');
  const heavy = /node_modules\/(@tensorflow|onnxruntime|@xenova|@jax-js|vitest|@vitest|oxlint|oxfmt)/;
  expect(forRuns.filter((path) => heavy.test(path))).toEqual([]);
});

test('recipes and models of the package are found from any folder; files of the folder come first', () => {
  const [root, here] = [process.cwd(), temporary()];
  try {
    process.chdir(here);
    expect(shippedPath('configs/gsm8k-tool.yaml')).toBe(join(root, 'configs/gsm8k-tool.yaml'));
    expect(shippedPath('checkpoints/gsm8k-tool')).toBe(join(root, 'checkpoints/gsm8k-tool'));
    for (const other of ['configs/no-such.yaml', 'package.json', 'runs/x']) expect(shippedPath(other)).toBe(other);
    mkdirSync('configs');
    writeFileSync('configs/gsm8k-tool.yaml', '');
    expect(shippedPath('configs/gsm8k-tool.yaml')).toBe('configs/gsm8k-tool.yaml');
  } finally {
    process.chdir(root);
  }
});

test("a chat template of a file replaces the tokenizer's, so that checkpoints are saved with it", async () => {
  const file = join(temporary(), 'chat.jinja');
  writeFileSync(file, 'A{{ messages[0].content }}');
  const model = stub<LoadedModel>({ tokenizerConfigJson: { eos_token: 'x', chat_template: 'B' } });
  expect((await withChatTemplate(model, file)).tokenizerConfigJson).toEqual({
    eos_token: 'x',
    chat_template: 'A{{ messages[0].content }}',
  });
  expect(await withChatTemplate(model, undefined)).toBe(model);
});

test('answers of evaluations are stored next to the rollouts and shown in the report', async () => {
  const { folder } = await RunFolder.create(disk, join(temporary(), 'run'), { name: 'x' });
  const answer = stub<LoggedRollout>({ step: 5, messages: [], problem: 'held-out-1' });
  await folder.writeValRollouts(5, [answer]);
  await folder.writeValRollouts(10, []);
  expect(readdirSync(folder.file('rollouts'))).toEqual(['val-step-5.jsonl']);
  expect(await folder.rollouts()).toEqual([]);
  await writeRunReport(folder);
  const report = JSON.parse(readFileSync(folder.file('report.json'), 'utf8')) as RunReport;
  expect(report.valRollouts).toMatchObject([{ step: 5, rollouts: [answer] }]);
});

test('a message stays on one line and readable, whatever it quotes', () => {
  expect(oneLine('Cannot read a\n\0b\x1b[31m: no such file.')).toBe(
    'Cannot read a\\n\\u0000b\\u001b[31m: no such file.',
  );
  expect(oneLine(`there are 2: ${'['.repeat(5000)}; allowed: one.`)).toHaveLength(600);
  expect(oneLine(`there are 2: ${'['.repeat(5000)}; allowed: one.`)).toMatch(/^there are 2: .*; allowed: one\.$/);
  // Line separators, direction marks and unpaired surrogates can hide or reorder a text, so they are replaced like control
  // characters. Letters of any script stay.
  expect(oneLine('a\u2028b\u2029c\u202ed\u2066e\x7ff\x9bg\ud800h')).toBe(
    'a\\u2028b\\u2029c\\u202ed\\u2066e\\u007ff\\u009bg\\ud800h',
  );
  expect(oneLine('caf\u00e9 \u4f60\u597d \ud83d\ude00')).toBe('caf\u00e9 \u4f60\u597d \ud83d\ude00');
});

test.each([
  ['a config', (text: string) => resolveTrainConfig({ [text]: 1 } as never)],
  [
    'a reward',
    (text: string) => {
      throw new UserCodeError('reward threw', `The reward threw "${text}".`);
    },
  ],
  ['an option', (text: string) => readArgs([text], { json: { help: '' } })],
])('bad input of %s is quoted on one line of at most 600 characters, without a command line', (_, use) => {
  for (const text of ['--a\nb\x1b[2J\u2028c', `--${'x'.repeat(5000)}`]) {
    const error = thrown(() => use(text));
    expect(error).toBeInstanceOf(InputError);
    expect(error.message).toMatch(/^[^\p{Cc}\u2028]{1,600}$/u);
    if (error instanceof ConfigError) expect(error.sentence).toMatch(/^[^\p{Cc}\u2028]{1,600}$/u);
  }
});

function thrown(use: () => unknown): Error {
  try {
    use();
  } catch (error) {
    return error as Error;
  }
  throw new Error('nothing was thrown');
}

test('progress has the tokens, and the time so far while nothing has ended; a log repeats it, a terminal does not', () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const said = (isTTY: boolean) => {
    let text = '';
    withIo({ ...processIo, stderr: { isTTY, write: (more: string) => (text += more) } }, () => {
      say('adapter');
      const progress = new Progress();
      let shown = () => progress.phase('step 1: generate');
      const stop = repeatProgress(() => shown());
      vi.advanceTimersByTime(75_000);
      shown = () => progress.text(0, 4, 'samples');
      vi.advanceTimersByTime(30_000);
      shown = () => progress.text(2, 4, 'samples', 640);
      vi.advanceTimersByTime(30_000);
      stop();
      vi.advanceTimersByTime(300_000);
    });
    return text.split('\n').slice(1, -1);
  };
  expect(said(false)).toEqual([
    ...['step 1: generate, 0:30 so far', 'step 1: generate, 1:00 so far'],
    ...['0 of 4 samples, 1:30 so far', '2 of 4 samples, 640 tokens, 2:00 left'],
  ]);
  expect(said(true)).toEqual([]);
});

test('a task without lines of its own shows its name: on a terminal immediately, in a log every 30 s', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const said = async (isTTY: boolean) => {
    let text = '';
    await withIo({ ...processIo, stderr: { isTTY, write: (more: string) => (text += more) } }, () => {
      say('memory plan');
      return whileWorking('loading', async (show) => {
        vi.advanceTimersByTime(31_000);
        show('1 of 2');
        vi.advanceTimersByTime(60_000);
      });
    });
    vi.advanceTimersByTime(300_000);
    return text
      .replaceAll('\r\x1b[K', '\n')
      .split('\n')
      .filter((line) => line !== '');
  };
  expect(await said(false)).toEqual(['memory plan', 'loading, 0:30 so far', '1 of 2', '1 of 2']);
  expect(await said(true)).toEqual(['memory plan', 'loading', '1 of 2']);
});
