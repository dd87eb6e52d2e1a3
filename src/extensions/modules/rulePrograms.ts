/** The programs that run a rule inside the sandbox. They check what the rule exports, and call it once per sample or token. */

export type RuleKind = 'reward' | 'loss' | 'tool';

/** Kinds of code that run in the sandbox: the three kinds of rules, and the functions of an exercise in a lesson. */
export type ProgramKind = RuleKind | 'functions';

const reward = `
import * as rule from './reward.js';
if (typeof rule.reward !== 'function') throw new TypeError('there is no "export function reward"');
const scoreOf = (tried) => {
  const score = rule.reward(tried);
  if (typeof score === 'number' && Number.isFinite(score)) return score;
  throw new TypeError('reward returned ' + String(score) + '. Return a number');
};
export default { run: (tries) => tries.map(scoreOf) };
`;

/** If the rule returns only the loss, its derivative is computed by central differences, with an error of about 1e-10 in float64. */
const loss = `
import * as rule from './loss.js';
if (typeof rule.loss !== 'function') throw new TypeError('there is no "export function loss"');
const STEP = 1e-6;
const tokenAt = (rows, e, shift) => {
  const logProb = rows.logProbs[e] + shift;
  const oldLogProb = rows.oldLogProbs[e];
  const ratio = Math.exp(Math.min(20, Math.max(-20, logProb - oldLogProb)));
  const { clipLow, clipHigh } = rows;
  return { advantage: rows.advantages[e], logProb, oldLogProb, ratio, entropy: rows.entropies[e], clipLow, clipHigh };
};
const number = (value, what) => {
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  throw new TypeError('loss returned ' + String(value) + what + '. Return a number, or { loss, grad }');
};
const valueAt = (rows, e, shift) => {
  const given = rule.loss(tokenAt(rows, e, shift));
  return typeof given === 'object' && given !== null ? given : number(given, '');
};
export default {
  run(rows) {
    const losses = [];
    const grads = [];
    for (let e = 0; e < rows.logProbs.length; e++) {
      const given = valueAt(rows, e, 0);
      if (typeof given === 'object') {
        losses.push(number(given.loss, ' as loss'));
        grads.push(number(given.grad, ' as grad'));
      } else {
        losses.push(given);
        grads.push((valueAt(rows, e, STEP) - valueAt(rows, e, -STEP)) / (2 * STEP));
      }
    }
    return { losses, grads };
  },
};
`;

const tool = `
import * as rule from './tool.js';
const { name, description, parameters, run } = rule;
if (typeof name !== 'string') throw new TypeError('there is no "export const name"');
if (typeof description !== 'string') throw new TypeError('there is no "export const description"');
if (typeof parameters !== 'object' || parameters === null) throw new TypeError('there is no "export const parameters"');
if (typeof run !== 'function') throw new TypeError('there is no "export function run"');
export default {
  async run({ args }) {
    if (args === null) return { name, description, parameters };
    return run(args);
  },
};
`;

const functions = `
import * as given from './functions.js';
const isList = (value) => Array.isArray(value) || ArrayBuffer.isView(value);
const plain = (value) => (isList(value) ? Array.from(value, (one) => one ?? null) : (value ?? null));
export default {
  run({ name, calls }) {
    const called = given[name];
    if (typeof called === 'function') return calls.map((args) => plain(called(...args)));
    throw new TypeError('there is no "export function ' + name + '"');
  },
};
`;

export const RULE_PROGRAMS: Readonly<Record<ProgramKind, string>> = { reward, loss, tool, functions };
