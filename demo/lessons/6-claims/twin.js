// How sure pass rates are, without a GPU: npm install webgrpo, then node twin.js A.json B.json. `webgrpo eval RUN --outcomes A.json
// rollout.valKwargs.n=8` writes such a file. Without files it compares the six algorithms of the lesson.
import { readFileSync } from 'node:fs';
import { pairedDifference, passInterval, permutationTest } from 'webgrpo';

/** Problems of 256 that the runs of each algorithm solved. @type {Record<string, number[]>} */
const SOLVED = {
  grpo: [242, 250, 252],
  dr_grpo: [245, 249, 251],
  dapo: [248, 252, 256],
  gspo: [247, 249, 251],
  cispo: [245, 246, 246],
  sapo: [231, 250, 251],
};

const rounded = (/** @type {number} */ value) => Number(value.toFixed(3));

/** @param {import('webgrpo').PassInterval} found */
const row = ({ mean, low, high }) => ({ mean: rounded(mean), low: rounded(low), high: rounded(high) });

const [a, b] = process.argv.slice(2).filter((file) => file.endsWith('.json'));
if (a && b) {
  const [before, after] = [a, b].map((file) => JSON.parse(readFileSync(file, 'utf8')).tries);
  console.table({
    [a]: row(passInterval(before)),
    [b]: row(passInterval(after)),
    'b - a': row(pairedDifference(before, after)),
  });
} else {
  const names = Object.keys(SOLVED);
  const against = (/** @type {string} */ name) =>
    names.map((other) => [other, rounded(permutationTest(SOLVED[name], SOLVED[other]))]);
  console.table(Object.fromEntries(names.map((name) => [name, Object.fromEntries(against(name))])));
}
