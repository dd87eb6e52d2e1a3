/**
 * Compares ways to select problems: in order, by difficulty (data.sampler), or sampled again until a group has signal (DAPO's
 * filterGroups). Trains a recipe each way until pass@1 reaches a target, and prints one table of steps, samples and minutes:
 *
 *     node scripts/curriculum-table.mjs configs/gsm8k-tool.yaml 0.95 trainer.totalTrainingSteps=120 seed=1
 */

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { needsShell } from './lib/say.mjs';

/** @typedef {Record<string, number>} Metrics */

const [recipe = 'configs/gsm8k-tool.yaml', target = '0.95', ...overrides] = process.argv.slice(2);
const TASKS = ['gsm8k-tool', 'countdown', 'reverse-text'];
const task = TASKS.find((name) => recipe.includes(name));
if (!task) throw new Error(`${recipe}; known: ${TASKS.join(', ')}`);

const FOLDER = 'runs/curriculum';
const FINITE = 'data.trainMaxSamples=512';
const WAYS = {
  'in order': [],
  'in order, of 512 problems': [FINITE],
  'by difficulty, of 512 problems': [FINITE, 'data.sampler=difficulty'],
  'redrawn (filterGroups)': ['algorithm.filterGroups.enable=true'],
};

const rows = Object.entries(WAYS).map(([way, keys], i) => {
  const name = `${task}-${i}`;
  const goal = `trainer.stopWhen={metric: val-core/${task}/acc/mean@1, atLeast: ${target}}`;
  const set = [`name=${name}`, `trainer.defaultLocalDir=${FOLDER}`, 'trainer.testFreq=5', goal, ...keys, ...overrides];
  const { status } = spawnSync('npm', ['run', '-s', 'webgrpo', '--', 'train', recipe, ...set], {
    stdio: 'inherit',
    shell: needsShell('npm'),
  });
  if (status !== 0) process.exit(status ?? 1);
  return row(
    way,
    readFileSync(`${FOLDER}/${name}/metrics.jsonl`, 'utf8')
      .trim()
      .split('\n')
      .map((line) => /** @type {Metrics} */ (JSON.parse(line))),
  );
});
console.log(`| problems | steps to ${target} | pass@1 at the end | samples generated | generated tokens | minutes |`);
console.log(`| --- | --- | --- | --- | --- | --- |\n${rows.join('\n')}`);

/**
 * @param {string} way
 * @param {Metrics[]} history
 */
function row(way, history) {
  const steps = history.filter((line) => line['timing_s/step'] !== undefined);
  const sum = (/** @type {(line: Metrics) => number | undefined} */ read) =>
    steps.reduce((total, line) => total + (read(line) ?? 0), 0);
  const pass =
    history.map((line) => line[`val-core/${task}/acc/mean@1`]).findLast((value) => value !== undefined) ?? NaN;
  const config = readFileSync(`${FOLDER}/${task}-0/config.yaml`, 'utf8');
  const numberOf = (/** @type {string} */ key) => Number(new RegExp(`^ +${key}: (\\d+)`, 'm').exec(config)?.[1]);
  const samples = sum((line) => line['training/num_gen_prompts'] ?? numberOf('trainBatchSize')) * numberOf('n');
  const minutes = sum((line) => line['timing_s/step']) / 60;
  const reached = pass >= Number(target) ? steps.length : `not in ${steps.length}`;
  return `| ${way} | ${reached} | ${pass.toFixed(3)} | ${samples} | ${sum((line) => line['perf/generated_tokens'])} | ${minutes.toFixed(1)} |`;
}
