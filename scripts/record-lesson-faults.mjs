/**
 * `node scripts/record-lesson-faults.mjs` trains the runs of lesson 7 with demo/lessons/7-faults/twin.js and stores them next to it:
 * recorded.json has the curves, tries.json the tries of the first two problems of each step. The run folders stay in runs/lesson-faults/,
 * and a complete run is not trained again. Takes an hour on two busy cores. `npm run build` must have written dist/lib.
 */

import { execFileSync, spawnSync } from 'node:child_process';
import { appendFileSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { say } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

const LESSON = join(ROOT, 'demo', 'lessons', '7-faults');
const FOLDER = join(ROOT, 'runs', 'lesson-faults');
const STEPS = 30;
/** Settings of all runs. The lesson's live cell has the same settings, so that its curve can be compared. */
const SETTINGS = [
  `trainer.totalTrainingSteps=${STEPS}`,
  'trainer.testFreq=10',
  'data.valMaxSamples=64',
  'data.trainBatchSize=8',
  'actor.ppoMiniBatchSize=4',
];
/** Number of steps of runs that are stopped early. In run `rate`, nothing changes after the first step, and a step takes a minute. */
const STOPPED = { rate: 12 };
/** Faults by the number of the run in the lesson. */
const RUNS = ['none', 'rate', 'cut', 'mixed', 'price', 'colder'];
const CURVES = [
  'critic/score/mean',
  'response_length/mean',
  'actor/entropy',
  'actor/pg_loss',
  'critic/acc/mean',
  'val-core/gsm8k-tool/acc/mean@1',
  'frac_reward_zero_std',
  'stop/max_tokens',
  'actor/grad_norm',
  'actor/ppo_kl',
  'training/rollout_probs_diff_max',
  'tool_call_counts/error_rate',
];
const CALL = /^<tool_call>\{"name":"calculator","arguments":\{"expression":"([^"\\]*)"\}\}<\/tool_call>$/;

const fileOf = (/** @type {string} */ fault) => join(FOLDER, `${fault}.jsonl`);
const linesOf = (/** @type {string} */ fault) =>
  existsSync(fileOf(fault))
    ? readFileSync(fileOf(fault), 'utf8')
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line))
    : [];

/** @param {string} fault @returns {number} */
const lastOf = (fault) => /** @type {Record<string, number>} */ (STOPPED)[fault] ?? STEPS;

/** Trains one run in this process. @param {string} fault */
async function train(fault) {
  const { train: trainWith } = await import('../demo/lessons/7-faults/twin.js');
  writeFileSync(fileOf(fault), '');
  await trainWith(fault, SETTINGS, (metrics, samples = []) => {
    const tries = samples.slice(0, 16).map(({ problem, group, trajectory, messages, reward, advantage }) => ({
      ...{ group, problem: problem.id, answer: problem.answer, prompt: problem.messages, messages },
      ...{
        score: reward.score,
        acc: reward.acc,
        stop: trajectory.stopReason,
        tokens: trajectory.responseIds.length,
        advantage,
      },
    }));
    appendFileSync(fileOf(fault), `${JSON.stringify({ metrics, tries })}\n`);
    if (metrics['training/global_step'] === lastOf(fault)) process.exit();
  });
}

/** Rounds to four digits; null = not measured. @param {number | null | undefined} value */
const short = (value) => (typeof value === 'number' ? Number(value.toPrecision(4)) : null);

/** Returns a message in the form that 7-faults/runs.ts reads. @param {{ role: string, content: string }} message */
function shortened({ role, content }) {
  if (role === 'tool') return `t${content}`;
  const [, call] = CALL.exec(content) ?? [];
  return call === undefined ? `a${content}` : `c${call}`;
}

/** Returns the tries of the first two problems of a step. @param {any[]} tries */
function groupsOf(tries) {
  return [...new Set(tries.map(({ group }) => group))].map((number) => {
    const own = tries.filter(({ group }) => group === number);
    const [{ problem, answer, prompt }] = own;
    const rows = own.map((one) => [
      ...[short(one.score), one.acc, short(one.advantage), one.tokens, one.stop],
      ...one.messages.map(shortened),
    ]);
    return { problem, answer, question: prompt.at(-1).content, tries: rows };
  });
}

const { values, positionals } = parseArgs({ allowPositionals: true, options: { adapter: { type: 'string' } } });
mkdirSync(FOLDER, { recursive: true });
if (positionals.length > 0) {
  await train(positionals[0]);
  process.exit(); // Dawn's threads would keep Node alive
}
const env = { ...process.env, ...setup({ dev: false, adapter: true }) };
for (const fault of RUNS)
  if (linesOf(fault).length <= lastOf(fault))
    spawnSync(process.execPath, [import.meta.filename, fault], { stdio: 'inherit', env });

const runs = RUNS.map((fault) => {
  const lines = linesOf(fault).map(({ metrics }) => metrics);
  const value = (/** @type {Record<string, number>} */ line, /** @type {string} */ name) =>
    short(line[name] ?? (name === 'stop/max_tokens' && 'critic/score/mean' in line ? 0 : undefined));
  return { fault, curves: Object.fromEntries(CURVES.map((name) => [name, lines.map((line) => value(line, name))])) };
});
const about = {
  command: `demo/lessons/7-faults/twin.js with ${SETTINGS.join(' ')}`,
  commit: execFileSync('git', ['-C', ROOT, 'rev-parse', '--short=8', 'HEAD'], { encoding: 'utf8' }).trim(),
  adapter: values.adapter ?? 'SwiftShader',
  date: statSync(fileOf('none')).mtime.toISOString().slice(0, 10),
};
const rows = runs.map((run) => JSON.stringify(run)).join(',\n');
writeFileSync(join(LESSON, 'recorded.json'), `${JSON.stringify(about).slice(0, -1)},\n"runs":[\n${rows}\n]}\n`);
const tries = RUNS.map((fault) =>
  linesOf(fault)
    .slice(1)
    .map((line) => groupsOf(line.tries)),
);
writeFileSync(join(LESSON, 'tries.json'), `[\n${tries.map((run) => JSON.stringify(run)).join(',\n')}\n]\n`);
say(`${LESSON}: ${runs.length} runs`);
