/**
 * Prints the tables of docs/lab/results.md from run folders:
 *   node scripts/results-table.mjs runs/seed-1 runs/seed-2 runs/seed-3
 * With --curve, also prints a table of the training steps: reward, entropy, and the share of groups whose rewards differ, each as a mean
 * over the runs.
 */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const folders = process.argv.slice(2).filter((word) => word !== '--curve');
if (folders.length === 0) {
  process.stderr.write('Name the run folders: node scripts/results-table.mjs runs/seed-1 runs/seed-2\n');
  process.exit(2);
}

/** @typedef {Record<string, number>} Metrics */

const matching = (/** @type {Metrics} */ metrics, /** @type {RegExp} */ pattern) =>
  Object.entries(metrics).find(([key]) => pattern.test(key))?.[1];
const [PASS, GREEDY] = [/\/acc\/mean@\d+$/, /\/acc\/greedy$/];
const show = (/** @type {number | undefined} */ value) => (value === undefined ? '' : value.toFixed(3));

/** @param {string} folder */
const metricsOf = (folder) =>
  readFileSync(join(folder, 'metrics.jsonl'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => /** @type {Metrics} */ (JSON.parse(line)));

/**
 * Returns one row per run, from its metrics.jsonl.
 * @param {string} folder
 */
function row(folder) {
  const lines = metricsOf(folder);
  const [first, last] = [lines[0], lines[lines.length - 1]];
  const seconds = lines.reduce((sum, m) => sum + (m['timing_s/step'] ?? 0) + (m['timing_s/testing'] ?? 0), 0);
  const curve = lines
    .filter((m) => matching(m, PASS) !== undefined)
    .map((m) => `${m['training/global_step']}: ${show(matching(m, PASS))}`);
  const most = Math.max(...lines.map((m) => m['training/rollout_probs_diff_max'] ?? 0));
  return [
    folder,
    show(matching(first, PASS)),
    show(matching(last, PASS)),
    show(matching(first, GREEDY)),
    show(matching(last, GREEDY)),
    String(last['training/global_step']),
    (seconds / 60).toFixed(1),
    String(most),
    curve.join(', '),
  ];
}

const head = [
  'run',
  'pass@1 before',
  'after',
  'greedy before',
  'after',
  'steps',
  'minutes',
  'rollout_probs_diff_max',
  'pass@1 by step',
];
/** @param {string[][]} rows the first is the head */
function print([head, ...rows]) {
  for (const cells of [head, head.map(() => '---'), ...rows]) process.stdout.write(`| ${cells.join(' | ')} |\n`);
}

print([head, ...folders.map(row)]);
if (process.argv.includes('--curve')) {
  const runs = folders.map((folder) => metricsOf(folder).filter((m) => m['critic/score/mean'] !== undefined));
  // A step without an update has no entropy.
  const mean = (/** @type {number} */ i, /** @type {(m: Metrics) => number | undefined} */ of) => {
    const known = runs.map((lines) => of(lines[i])).filter((value) => value !== undefined);
    return show(known.reduce((sum, value) => sum + value, 0) / known.length);
  };
  const steps = Math.min(...runs.map(({ length }) => length));
  process.stdout.write('\n');
  print([
    ['step', 'reward', 'entropy', 'groups with spread'],
    ...Array.from({ length: steps }, (_, i) => [
      String(runs[0][i]['training/global_step']),
      mean(i, (m) => m['critic/score/mean']),
      mean(i, (m) => m['actor/entropy']),
      mean(i, (m) => 1 - m['frac_reward_zero_std']),
    ]),
  ]);
}
