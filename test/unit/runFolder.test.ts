/** Tests which checkpoints of a run are kept, and where a run resumes. */

import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { beforeEach, expect, test, vi } from 'vitest';
import { profile } from '../../src/cli/commands/profile.ts';
import { report } from '../../src/cli/commands/report.ts';
import { explainLoss } from '../../src/report/explainLoss.ts';
import { writeCheckpoint } from '../../src/runs/checkpointFolder.ts';
import { KeptCheckpoints } from '../../src/runs/keptCheckpoints.ts';
import { configChanges } from '../../src/extensions/yaml/configChanges.ts';
import { checkpointToResume, resumeCommand, setLaterAside } from '../../src/cli/run/resume.ts';
import { disk } from '../../src/cli/files.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { InputError } from '../../src/errors.ts';

let defaultLocalDir: string;
let folder: RunFolder;

beforeEach(async () => {
  defaultLocalDir = mkdtempSync(join(tmpdir(), 'webgrpo-folder-'));
  ({ folder } = await RunFolder.create(disk, join(defaultLocalDir, 'run'), {}));
  vi.restoreAllMocks();
  vi.spyOn(process.stderr, 'write').mockReturnValue(true);
});

/** Writes a checkpoint that consists of its name, the trainer's state and the manifest only. */
async function save(
  step: number,
  files: object = { 'trainer_state.json': JSON.stringify({ step, problems: 0, updates: 0 }) },
) {
  await writeCheckpoint(disk, folder.checkpoint(step), new Map(Object.entries(files)));
}

const saved = () => readdirSync(folder.file('checkpoints')).sort();
const line = (step: number, acc: number) => ({ 'training/global_step': step, 'val-core/t/acc/mean@1': acc });
const said = () => vi.mocked(process.stderr.write).mock.calls.map(([text]) => String(text).trim());

/** Returns the checkpoints that remain of a run that saves at every step. */
async function stays(kept: KeptCheckpoints, accs: number[], from = 1, passing: number[] = []): Promise<string[]> {
  for (const [i, acc] of accs.entries()) {
    kept.isBest(line(from + i, acc));
    await save(from + i);
    await kept.update(from + i, passing.includes(from + i));
  }
  return saved();
}

test('the newest few checkpoints are kept, and the best one while it is the best', async () => {
  const settings = { maxActorCkptToKeep: 2, metricForBestModel: 'val-core/t/acc/mean@1' };
  const kept = await KeptCheckpoints.open(folder, settings);
  expect(kept.isBest(line(0, 1))).toBe(false); // the initial model is not a checkpoint of the run
  expect(await stays(kept, [0.5, 0.8, 0.8, NaN, 0.7])).toEqual(['step-2', 'step-4', 'step-5']);
  expect(JSON.parse(readFileSync(folder.file('best.json'), 'utf8'))).toEqual({
    step: 2,
    metric: 'val-core/t/acc/mean@1',
    value: 0.8,
    checkpoint: 'checkpoints/step-2',
  });
  // After a resume, only a step whose checkpoint still exists can be the best.
  const resumed = await KeptCheckpoints.open(folder, settings, {
    history: [line(1, 0.99), line(2, 0.8), line(5, 0.7)],
  });
  expect(resumed.best).toMatchObject({ step: 2, value: 0.8 });
  expect(await stays(resumed, [0.79, 0.9, 0.1], 6)).toEqual(['step-7', 'step-8']);
});

test('without the settings all checkpoints are kept, and none is the best', async () => {
  const kept = await KeptCheckpoints.open(folder, {});
  expect(await stays(kept, [0.1, 0.9, 0.2])).toEqual(['step-1', 'step-2', 'step-3']);
  expect([kept.best, readdirSync(folder.path).includes('best.json')]).toEqual([undefined, false]);
});

test('a checkpoint saved by time is replaced by the next, unless it is the best', async () => {
  const kept = await KeptCheckpoints.open(folder, { metricForBestModel: 'val-core/t/acc/mean@1' });
  expect(await stays(kept, [0.1, 0.9, 0.2, 0.3, 0.3], 1, [1, 2, 3, 4])).toEqual(['step-2', 'step-5']);
  // The run was stopped at step 5 and resumes. The next checkpoint replaces that of step 5.
  const resumed = await KeptCheckpoints.open(folder, {}, { passing: 5 });
  expect(await stays(resumed, [0.1, 0.1], 6, [7])).toEqual(['step-2', 'step-6', 'step-7']);
});

test('a metric whose name ends in loss is better when lower, by default', async () => {
  const bestOf = async (settings: object) => {
    const kept = await KeptCheckpoints.open(folder, { metricForBestModel: 'actor/pg_loss', ...settings });
    [3, 1, 2].forEach((loss, i) => kept.isBest({ 'training/global_step': i + 1, 'actor/pg_loss': loss }));
    return kept.best?.value;
  };
  expect([await bestOf({}), await bestOf({ greaterIsBetter: true })]).toEqual([1, 3]);
});

test('a metric that steps do not have is refused at the first line that would have it', async () => {
  const kept = (metric: string) => KeptCheckpoints.open(folder, { metricForBestModel: metric });
  const [missing, unknown] = [await kept('val-core/t/acc/mean@8'), await kept('critic/scores/mean')];
  expect(() => missing.isBest(line(0, 0.5))).toThrow(
    /^trainer\.metricForBestModel is "val-core\/t\/acc\/mean@8", .* Did you mean "val-core\/t\/acc\/mean@1"\?$/,
  );
  const step = { 'training/global_step': 1, 'critic/score/mean': 1 };
  expect(() => unknown.isBest(step)).toThrow(InputError);
  expect((await kept('val-core/t/acc/mean@8')).isBest(step)).toBe(false); // no evaluation yet
});

const config = (trainer: object) =>
  resolveTrainConfig({
    name: 'run',
    model: { path: 'x' },
    data: { maxPromptLength: 8, maxResponseLength: 8 },
    trainer: { defaultLocalDir, ...trainer },
  });

test('the resume mode selects where a run resumes', async () => {
  const auto = () => checkpointToResume(config({ resumeMode: 'auto' }));
  const fromPath = (path: string) => checkpointToResume(config({ resumeMode: 'resume_path', resumeFromPath: path }));
  expect(await auto()).toBeUndefined();
  expect(said()).toEqual([expect.stringMatching(/has no checkpoint of a training run: training from scratch$/)]);
  await save(9);
  await save(10);
  expect(await auto()).toBe(folder.checkpoint(10));
  expect(await checkpointToResume(config({}))).toBeUndefined();
  expect(await fromPath(folder.checkpoint(9))).toBe(folder.checkpoint(9));
  expect(await fromPath(folder.path)).toBe(folder.checkpoint(10));
  await expect(fromPath(defaultLocalDir)).rejects.toThrow(
    /is not a checkpoint of a training run and contains none\. Give a folder/,
  );
  await save(11, {}); // of a supervised run: only a model
  expect(await auto()).toBe(folder.checkpoint(10));
});

/** Returns the lines printed when a run with the settings `before` is resumed with changes at a dotted path. */
const changes = (before: object, after: object) =>
  configChanges(stringify(resolveTrainConfig(written(before))), resolveTrainConfig(written(after)), 4);
const written = ({ trainer = {}, ...rest }: { trainer?: object }) => ({
  name: 'run',
  model: { path: 'x' },
  data: { maxPromptLength: 8, maxResponseLength: 8 },
  trainer: { defaultLocalDir, ...trainer },
  ...rest,
});
const NEITHER = 'what follows is neither that run nor one of this config from its start';

test("differences of a resumed run's config are reported key by key", () => {
  expect(changes({}, {})).toEqual([]);
  const ofTheCommand = { resumeMode: 'auto', resumeFromPath: 'b', defaultLocalDir: 'c' };
  expect(changes({}, { trainer: ofTheCommand })).toEqual([]);
  expect(changes({}, { seed: 5, actor: { optim: { lr: 0.5 } } })).toEqual([
    'the config differs from that of the steps up to 4:',
    '  seed: 1 -> 5',
    '  actor.optim.lr: "auto" -> 0.5',
    NEITHER,
  ]);
  expect(changes({ trainer: { stopWhen: { metric: 'a', atLeast: 1 } } }, {}).slice(1, 3)).toEqual([
    '  trainer.stopWhen.metric: "a" -> absent',
    '  trainer.stopWhen.atLeast: 1 -> absent',
  ]);
});

test('values that differ only after many characters are a difference', () => {
  const long = (end: string) => ({ model: { path: `${'x'.repeat(80)}${end}` } });
  expect(changes(long('a'), long('a'))).toEqual([]);
  expect(changes(long('a'), long('b'))).toHaveLength(3);
});

test('more steps are not a difference if the learning rate does not depend on the last step', () => {
  const longer = (lrSchedulerType: string) =>
    changes(
      { actor: { optim: { lrSchedulerType } } },
      { actor: { optim: { lrSchedulerType } }, trainer: { totalTrainingSteps: 90, saveFreq: 3 } },
    );
  expect(longer('constant')).not.toContain(NEITHER);
  expect(longer('constant')).toHaveLength(3);
  expect(longer('cosine')).toContain(NEITHER);
});

test('ten changes are listed, more are counted, and a config of an earlier version lacks no default', () => {
  const after = resolveTrainConfig(written({}));
  expect(
    configChanges('name: run\nmodel: { path: x }\ndata: { maxPromptLength: 8, maxResponseLength: 8 }\n', after, 4),
  ).toEqual([]);
  const lines = configChanges(`nonsense: {${Array.from({ length: 40 }, (_, i) => `k${i}: 1`).join(', ')}}`, after, 4);
  expect(lines).toHaveLength(1 + 10 + 1 + 1);
  expect(lines[11]).toMatch(/^ {2}and \d+ more$/);
});

test('the config of earlier steps is kept, once', async () => {
  const path = folder.file('config-1.yaml');
  expect([await folder.keepConfig(), await folder.keepConfig()]).toEqual([path, path]);
  await RunFolder.reopen(disk, folder.path, 1, { seed: 2 });
  expect(await folder.keepConfig()).toBe(folder.file('config-2.yaml'));
  expect([readFileSync(path, 'utf8'), readFileSync(folder.file('config-2.yaml'), 'utf8')]).toEqual([
    '{}\n',
    'seed: 2\n',
  ]);
});

test('a run resumed before its first step evaluates again, and logs that once', async () => {
  await folder.appendMetrics(line(0, 0.5));
  await RunFolder.reopen(disk, folder.path, 0, {});
  expect(await folder.metrics()).toEqual([]);
});

test.each([1, 0])('logs of steps after %i are deleted, and those of failed steps stay', async (step) => {
  for (const logged of [0, 1, 2, 10]) {
    await folder.appendMetrics(line(logged, 0.5));
    for (const name of ['rollouts/step', 'rollouts/val-step', 'profile/step'])
      await disk.write(folder.file(`${name}-${logged}.jsonl`), '{}');
  }
  const failed = await folder.writeError(2, [{}]);
  const reopened = await RunFolder.reopen(disk, folder.path, step, {});
  const left = step === 0 ? [] : [0, 1];
  const names = (of: string[]) => left.flatMap((logged) => of.map((name) => `${name}-${logged}.jsonl`)).sort();
  expect(readdirSync(folder.file('rollouts')).sort()).toEqual(names(['step', 'val-step']));
  expect(readdirSync(folder.file('profile')).sort()).toEqual(names(['step']));
  expect((await reopened.metrics()).map((kept) => kept['training/global_step'])).toEqual(left);
  expect(existsSync(failed)).toBe(true);
});

test('checkpoints after the resumed one are renamed', async () => {
  for (const step of [5, 10, 15]) await save(step);
  await setLaterAside(folder, 10);
  expect(saved()).toEqual(['step-10', 'step-15-1', 'step-5']);
  await save(15);
  await setLaterAside(folder, 10);
  expect(saved()).toEqual(['step-10', 'step-15-1', 'step-15-2', 'step-5']);
  const aside = folder.file('checkpoints', 'step-15-1');
  const from = (name: string) =>
    checkpointToResume({ ...config({ resumeMode: 'resume_path', resumeFromPath: aside }), name });
  await expect(from('run')).rejects.toThrow(/step-15-1 was set aside when .* for example name=run-2\.$/);
  expect(await from('run-2')).toBe(aside);
});

test('the command to resume has the arguments of the stopped one', () => {
  vi.stubEnv('WEBGRPO_STARTED_AS', 'npx webgrpo');
  const words = ['seed=2', 'trainer.resumeMode=resume_path', 'trainer.resumeFromPath=a', 'rollout.stop=["a b"]'];
  expect(resumeCommand('my config.yaml', { overrides: words })).toBe(
    `npx webgrpo train 'my config.yaml' seed=2 'rollout.stop=["a b"]' trainer.resumeMode=auto`,
  );
  const given = {
    flags: { port: '8123', evaluate: true, json: true, token: 'secret' },
    lists: { import: ['a b.mjs', 'c.mjs'] },
  };
  expect(resumeCommand('c.yaml', { overrides: [], ...given }, 'serve')).toBe(
    `npx webgrpo serve c.yaml trainer.resumeMode=auto --port 8123 --evaluate --token TEXT --import 'a b.mjs' --import c.mjs`,
  );
  const room = { nats: 'nats://controller:p:w@d@host:4222', worker: 'w:se:cret' };
  expect(resumeCommand('c.yaml', { overrides: [], flags: room }, 'room')).toBe(
    'npx webgrpo room c.yaml trainer.resumeMode=auto --nats nats://controller:PASSWORD@host:4222 --worker w:PASSWORD',
  );
  vi.unstubAllEnvs();
});

const STEP = 'training/global_step';
const ROLLOUT = {
  step: 1,
  group: 0,
  problem: 'p',
  answer: '1',
  messages: [{ role: 'user', content: 'q' }],
  score: 1,
  acc: 1,
};
const PROFILE = [
  { step: 1, phases: [['generate', 0, 5]] },
  {
    id: '0.0',
    problem: 'p',
    stop: 'completed',
    turns: 1,
    tokens: 4,
    toolCalls: 0,
    score: 1,
    events: [['decode', 1, 0, 5]],
  },
];
const CONFIG_YAML = 'data: {maxResponseLength: 8}\nrollout: {maxNumSeqs: 4, multiTurn: {toolTimeoutS: 1}}\n';

test('metrics that are not finite are read as NaN, and written as null again', async () => {
  await folder.appendMetrics({ ...line(1, 0.5), 'actor/pg_loss': NaN, 'critic/advantages/abs_mean': Infinity });
  const [read] = await folder.metrics();
  expect(read).toEqual({ ...line(1, 0.5), 'actor/pg_loss': NaN, 'critic/advantages/abs_mean': NaN });
  expect(explainLoss(read)).toBeUndefined();
  const text = readFileSync(folder.file('metrics.jsonl'), 'utf8');
  await folder.writeMetrics([read]);
  expect(readFileSync(folder.file('metrics.jsonl'), 'utf8')).toBe(text);
});

/** Lines that are invalid in every log of a run. */
const DAMAGED = [
  ...['{', '', '\0\0', 'null', '7', '[]', '"x"', '{}', '{"__proto__": {"polluted": 1}}', '\ud800', 'x'.repeat(1 << 20)],
  ...[`{"${STEP}": "1"}`, `{"${STEP}": -1}`, `{"${STEP}": 1.5}`, `{"${STEP}": 1e400}`, `{"${STEP}": 1, "a": "b"}`],
  ...[`{"${STEP}": 1, "a": [1]}`, `{"${STEP}": 1, "a": 1e400}`, `{"${STEP}": null}`, '['.repeat(200_000)],
  ...[
    '{"step": 1}',
    '{"step": 1, "messages": null}',
    '{"step": 1, "messages": [null]}',
    '{"step": 1, "messages": [{}]}',
  ],
  ...['{"step": "1", "messages": []}', '{"step": 1, "messages": [{"role": 1}]}', '{"step": 1, "phases": [1]}'],
  ...['{"step": 1, "phases": [["a", "b", 1]]}', '{"id": "0.1", "turns": 1, "tokens": 1e300, "events": []}'],
  ...[
    '{"id": "0.1", "turns": 1, "tokens": 1, "events": [["decode", 1, 0]]}',
    '{"id": "0.1", "turns": 1, "tokens": -1}',
  ],
];

/** Writes a run folder whose logs contain the line `damage`: as the first, as the last, and as the only line. */
async function damagedRun(damage: string): Promise<void> {
  const whole = (lines: object[]) => lines.map((one) => JSON.stringify(one));
  const put = async (name: string, lines: string[]) => {
    const file = folder.file(...name.split('/'));
    mkdirSync(join(file, '..'), { recursive: true });
    writeFileSync(file, lines.map((one) => `${one}\n`).join(''));
  };
  await put('metrics.jsonl', [damage, ...whole([line(0, 0.5), line(1, 0.75)]), damage]);
  await put('rollouts/step-1.jsonl', [...whole([ROLLOUT]), damage]);
  await put('rollouts/val-step-1.jsonl', [damage, ...whole([ROLLOUT])]);
  await put('rollouts/step-2.jsonl', [damage]);
  await put('profile/step-1.jsonl', [...whole(PROFILE), damage]);
  await put('profile/step-2.jsonl', [damage, ...whole(PROFILE)]);
  await put('config.yaml', [CONFIG_YAML]);
}

const isFull = process.env['FULL_TESTS'] === '1';
test.each(
  DAMAGED.filter((_, i) => isFull || i % 3 === 2).map((damage) => [
    damage.length > 60 ? `${damage.slice(0, 60)}...` : damage,
    damage,
  ]),
)('logs with a line %j in them are read without it', async (_, damage) => {
  const warn = vi.spyOn(console, 'warn').mockReturnValue();
  await damagedRun(damage);
  expect((await folder.metrics()).map((one) => one[STEP])).toEqual([0, 1]);
  expect((await folder.rollouts()).length).toBeLessThanOrEqual(2);
  expect((await folder.rollouts())[0]).toMatchObject(ROLLOUT);
  const io = { json: true, text: () => {}, result: () => {} };
  const args = { positionals: [folder.path], overrides: [], flags: {} };
  await report.run(args, io);
  await profile.run(args, io);
  expect(existsSync(folder.file('report.html')) && existsSync(folder.file('profile.html'))).toBe(true);
  const sentences = warn.mock.calls.map(([sentence]) => String(sentence));
  expect(new Set(sentences).size).toBe(sentences.length); // each message occurs once
  if (damage !== '')
    expect(sentences).toContain(`2 of 4 lines of ${folder.file('metrics.jsonl')} cannot be read and are skipped`);
  await RunFolder.reopen(disk, folder.path, 1, {});
  expect({}).not.toHaveProperty('polluted');
});

test('unreadable logs end in one error message', async () => {
  vi.spyOn(console, 'warn').mockReturnValue();
  writeFileSync(folder.file('metrics.jsonl'), 'x\ny\n');
  mkdirSync(folder.file('profile'));
  writeFileSync(folder.file('profile', 'step-1.jsonl'), '');
  const io = { json: true, text: () => {}, result: () => {} };
  const args = { positionals: [folder.path], overrides: [], flags: {} };
  await expect(report.run(args, io)).rejects.toThrow(InputError);
  await expect(profile.run(args, io)).rejects.toThrow(InputError);
  writeFileSync(folder.file('profile', 'step-1.jsonl'), PROFILE.map((one) => `${JSON.stringify(one)}\n`).join(''));
  await expect(profile.run(args, io)).rejects.toThrow('"data.maxResponseLength" is undefined; allowed: a number');
});
