/**
 * Reads the logs of a run in TRL and of a run in webgrpo into the same form, and prints runs as a Markdown table for scripts/bench-trl.mjs.
 */

/**
 * Measurements of one run. null = not measured.
 * @typedef {{
 *   seed: number, reward: (number | null)[], before: number | null, after: number | null,
 *   step: number | null, generation: number | null, update: number | null,
 *   usage: { seconds: number, cpuSeconds: number, peakBytes: number } | null,
 * }} Run
 * @typedef {{ setup: { seconds: number, bytes: number } | null, runs: Run[] }} Side
 * @typedef {{ name: string, steps: number, sides: Record<string, Side> }} Results
 * @typedef {Record<string, any>} Line
 */

/**
 * Reads JSON lines. A last line that an interrupted run left half written is skipped, and Python's NaN and Infinity become null.
 * @param {string} text
 * @returns {Line[]}
 */
export function readLines(text) {
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  return lines.flatMap((line, i) => {
    try {
      return [JSON.parse(line.replaceAll(/: (?:NaN|-?Infinity)(?=[,}])/g, ': null'))];
    } catch (error) {
      if (i === lines.length - 1) return [];
      throw error;
    }
  });
}

const isNumber = (/** @type {unknown} */ value) => typeof value === 'number' && Number.isFinite(value);
/** @param {unknown[]} values @returns {number | null} */
function mean(values) {
  const known = /** @type {number[]} */ (values.filter(isNumber));
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length;
}

/**
 * Returns the held-out scores at the start and at the end of a run; null if the run did not reach that evaluation.
 * @param {(at: number) => unknown} scoreAt
 * @param {number} last
 */
function heldOut(scoreAt, last) {
  const [before, after] = [scoreAt(0), scoreAt(last)].map((value) => (isNumber(value) ? Number(value) : null));
  return { before, after };
}

/**
 * Reads what bench/peers/trl/timed.py wrote. A step of TRL is one update; `updates` of them correspond to one step of webgrpo.
 * @param {Line[]} lines
 * @param {{ seed: number, steps: number, updates: number }} run
 * @returns {Omit<Run, 'usage'>}
 */
export function readTrl(lines, { seed, steps, updates }) {
  const trained = lines.filter(({ seconds }) => seconds !== undefined);
  const complete = Math.floor(trained.length / updates);
  const groups = Array.from({ length: complete }, (_, i) => trained.slice(i * updates, (i + 1) * updates));
  /** @param {'step' | 'generation' | 'update'} phase */
  const seconds = (phase) => mean(groups.map((group) => group.reduce((sum, line) => sum + line.seconds[phase], 0)));
  const scoreAt = (/** @type {number} */ at) =>
    lines.find((line) => line.step === at * updates && line.eval_reward !== undefined)?.eval_reward;
  return {
    seed,
    reward: groups.map((group) => mean(group.map(({ reward }) => reward))),
    ...heldOut(scoreAt, steps),
    step: seconds('step'),
    generation: seconds('generation'),
    update: seconds('update'),
  };
}

/**
 * Reads metrics.jsonl of a webgrpo run.
 * @param {Line[]} lines
 * @param {{ seed: number, steps: number }} run
 * @returns {Omit<Run, 'usage'>}
 */
export function readOurs(lines, { seed, steps }) {
  const trained = lines.filter((line) => line['timing_s/step'] !== undefined);
  const seconds = (/** @type {string} */ phase) => mean(trained.map((line) => line[`timing_s/${phase}`]));
  const scoreAt = (/** @type {number} */ at) => {
    const line = lines.find((found) => found['training/global_step'] === at) ?? {};
    return Object.entries(line).find(([key]) => /^val-core\/.*\/acc\/mean@\d+$/.test(key))?.[1];
  };
  return {
    seed,
    reward: trained.map((line) => (isNumber(line['critic/score/mean']) ? line['critic/score/mean'] : null)),
    ...heldOut(scoreAt, steps),
    step: seconds('step'),
    generation: seconds('gen'),
    update: seconds('update_actor'),
  };
}

/**
 * Returns the mean over seeds as text, followed by the lowest and the highest value.
 * @param {(number | null | undefined)[]} values
 * @param {number} digits
 */
function spread(values, digits) {
  const known = /** @type {number[]} */ (values.filter(isNumber));
  if (known.length === 0) return '-';
  const show = (/** @type {number} */ value) => value.toFixed(digits);
  const middle = show(/** @type {number} */ (mean(known)));
  return known.length === 1 ? middle : `${middle} (${show(Math.min(...known))} to ${show(Math.max(...known))})`;
}

const MB = 1e6;
/** @param {(number | null)[]} rewards @param {number} from @param {number} [to] */
const share = (rewards, from, to) => mean(rewards.slice(from, to));

/**
 * Returns a function that makes a table cell: mean and range of a value over the runs of one side.
 * @param {(run: Run) => number | null | undefined} of
 * @param {number} digits
 * @returns {(side: Side) => string}
 */
const over =
  (of, digits) =>
  ({ runs }) =>
    spread(runs.map(of), digits);

/** @type {[what: string, cell: (side: Side) => string][]} */
const ROWS = [
  ['seeds', ({ runs }) => runs.map(({ seed }) => seed).join(', ') || '-'],
  ['held-out pass@1 before', over(({ before }) => before, 3)],
  ['held-out pass@1 after', over(({ after }) => after, 3)],
  ['mean reward of the first ten steps', over(({ reward }) => share(reward, 0, 10), 3)],
  ['mean reward of the last ten steps', over(({ reward }) => share(reward, -10), 3)],
  ['seconds per step', over(({ step }) => step, 2)],
  ['of these, generation', over(({ generation }) => generation, 2)],
  ['of these, update', over(({ update }) => update, 2)],
  ['seconds in all', over(({ usage }) => usage?.seconds, 0)],
  ['CPU seconds in all', over(({ usage }) => usage?.cpuSeconds, 0)],
  ['peak memory, MB', over(({ usage }) => usage && usage.peakBytes / MB, 0)],
  ['set-up, seconds', ({ setup }) => (setup ? setup.seconds.toFixed(0) : '-')],
  ['set-up, MB', ({ setup }) => (setup ? (setup.bytes / MB).toFixed(0) : '-')],
];

/**
 * Returns the table of docs/lab/performance.md, without rows that no side has measured.
 * @param {Results} results
 */
export function besideTrlTable({ name, steps, sides }) {
  const line = (/** @type {string[]} */ cells) => `| ${cells.join(' | ')} |`;
  const head = [`${name}, ${steps} steps`, ...Object.keys(sides)];
  const rows = ROWS.map(([what, cell]) => [what, ...Object.values(sides).map(cell)]);
  const measured = rows.filter(([, ...cells]) => cells.some((cell) => cell !== '-'));
  return [head, head.map(() => '---'), ...measured].map(line).join('\n');
}
