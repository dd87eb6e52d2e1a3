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

/**
 * If the rule returns only the loss, its derivatives are computed by central differences, with an error of about 1e-10 in float64. That by
 * the entropy is computed only for tokens whose entropy the rule has read, because every derivative calls the rule twice.
 */
const loss = `
import * as rule from './loss.js';
if (typeof rule.loss !== 'function') throw new TypeError('there is no "export function loss"');
const STEP = 1e-6;
let readsEntropy = false;
const tokenAt = (rows, e, shift, entropyShift) => {
  const logProb = rows.logProbs[e] + shift;
  const oldLogProb = rows.oldLogProbs[e];
  const ratio = Math.exp(Math.min(20, Math.max(-20, logProb - oldLogProb)));
  const { clipLow, clipHigh } = rows;
  const entropy = () => {
    readsEntropy = true;
    return rows.entropies[e] + entropyShift;
  };
  const token = { advantage: rows.advantages[e], logProb, oldLogProb, ratio, clipLow, clipHigh };
  return Object.defineProperty(token, 'entropy', { get: entropy, enumerable: true });
};
const number = (value, what) => {
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  throw new TypeError('loss returned ' + String(value) + what + '. Return a number, or { loss, grad }');
};
const valueAt = (rows, e, shift = 0, entropyShift = 0) => {
  const given = rule.loss(tokenAt(rows, e, shift, entropyShift));
  return typeof given === 'object' && given !== null ? given : number(given, '');
};
export default {
  run(rows) {
    const losses = [];
    const grads = [];
    const entropyGrads = [];
    for (let e = 0; e < rows.logProbs.length; e++) {
      readsEntropy = false;
      const given = valueAt(rows, e);
      if (typeof given === 'object') {
        losses.push(number(given.loss, ' as loss'));
        grads.push(number(given.grad, ' as grad'));
        entropyGrads.push(number(given.entropyGrad ?? 0, ' as entropyGrad'));
      } else {
        losses.push(given);
        const slope = (step, entropyStep) =>
          (valueAt(rows, e, step, entropyStep) - valueAt(rows, e, -step, -entropyStep)) / (2 * STEP);
        entropyGrads.push(readsEntropy ? slope(0, STEP) : 0);
        grads.push(slope(STEP, 0));
      }
    }
    return { losses, grads, entropyGrads };
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
