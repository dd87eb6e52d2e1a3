/**
 * Prints the table of docs/lab/results.md from run folders:
 *   node scripts/results-table.mjs runs/seed-1 runs/seed-2 runs/seed-3
 */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const folders = process.argv.slice(2);
if (folders.length === 0) {
  process.stderr.write('Name the run folders: node scripts/results-table.mjs runs/seed-1 runs/seed-2\n');
  process.exit(2);
}

/** @typedef {Record<string, number>} Metrics */

const endingWith = (/** @type {Metrics} */ metrics, /** @type {string} */ suffix) =>
  Object.entries(metrics).find(([key]) => key.endsWith(suffix))?.[1];
const show = (/** @type {number | undefined} */ value) => (value === undefined ? '' : value.toFixed(3));

/**
 * Returns one row per run, from its metrics.jsonl.
 * @param {string} folder
 */
function row(folder) {
  const lines = readFileSync(join(folder, 'metrics.jsonl'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => /** @type {Metrics} */ (JSON.parse(line)));
  const [first, last] = [lines[0], lines[lines.length - 1]];
  const seconds = lines.reduce((sum, m) => sum + (m['timing_s/step'] ?? 0) + (m['timing_s/testing'] ?? 0), 0);
  const curve = lines
    .filter((m) => endingWith(m, '/acc/mean@1') !== undefined)
    .map((m) => `${m['training/global_step']}: ${show(endingWith(m, '/acc/mean@1'))}`);
  const most = Math.max(...lines.map((m) => m['training/rollout_probs_diff_max'] ?? 0));
  return [
    folder,
    show(endingWith(first, '/acc/mean@1')),
    show(endingWith(last, '/acc/mean@1')),
    show(endingWith(first, '/acc/greedy')),
    show(endingWith(last, '/acc/greedy')),
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
for (const cells of [head, head.map(() => '---'), ...folders.map(row)])
  process.stdout.write(`| ${cells.join(' | ')} |\n`);
