/**
 * Prints data for the page's cards, from recorded runs: the reward curve, and seconds by phase.
 *
 *     npm run -s webgrpo -- train configs/reverse-text.yaml
 *     node scripts/record-recipes.mjs runs/reverse-text [--share=0.42]
 *
 * `--share`: the wall time that the run would have taken alone on the machine, as a share of its actual wall time:
 * processor seconds / (1.75 x wall seconds).
 */

import { existsSync, readFileSync } from 'node:fs';
import { basename } from 'node:path';

const words = process.argv.slice(2);
const share = Number(words.find((word) => word.startsWith('--share='))?.slice(8) ?? 1);

for (const folder of words.filter((word) => !word.startsWith('--'))) {
  const lines = read(folder);
  const steps = lines.filter((line) => line['training/global_step'] > 0);
  const warm = existsSync(`${folder}-sft/metrics.jsonl`) ? read(`${folder}-sft`) : [];
  const record = {
    reward: steps.map((line) => round(line['critic/score/mean'], 3)),
    seconds: {
      warmStart: round(share * sum(warm, 'timing_s/step'), 1),
      step: round((share * sum(steps, 'timing_s/step')) / steps.length, 2),
      evaluation: round(share * (lines.find((line) => 'timing_s/testing' in line)?.['timing_s/testing'] ?? 0), 1),
    },
  };
  process.stdout.write(`'${basename(folder)}': ${JSON.stringify(record)},\n`);
}

/** @param {string} folder @returns {Record<string, number>[]} */
function read(folder) {
  const text = readFileSync(`${folder}/metrics.jsonl`, 'utf8');
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
}

/** @param {Record<string, number>[]} lines @param {string} name */
function sum(lines, name) {
  return lines.reduce((total, line) => total + (line[name] ?? 0), 0);
}

/** @param {number} value @param {number} digits */
function round(value, digits) {
  return Number(value.toFixed(digits));
}
