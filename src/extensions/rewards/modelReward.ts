/**
 * Rewards by models, combined with rule-based ones. A discriminative model scores a conversation through a transformers.js
 * pipeline; a generative judge can be any function that completes a prompt.
 */

import { InputError } from '../../errors.ts';
import { fillJudgePrompt, JUDGE_PROMPT, question } from '../../tasks/rewards/judgePrompt.ts';
import type { Reward, ScoredSample, Task } from '../../tasks/task.ts';
import type { Classifier, Completion } from './transformersModels.ts';

export type { Classifier, Completion } from './transformersModels.ts';

type RewardFunction = Task['reward'];

/** Returns one number for a sample. */
export type Scorer = (sample: ScoredSample) => number | Promise<number>;

interface DiscriminativeOptions {
  /** Folder or name of an ONNX model. */
  model: string;
  /** Label whose probability is the score. Default: the most likely one. */
  label?: string;
  /** Replaces transformers.js. */
  load?: (model: string) => Promise<Classifier>;
}

/** Scores by the probability of a label, from a model that is loaded at the first sample and reads the question and the last answer. */
export function discriminativeScorer({ model, label, load = loadClassifier }: DiscriminativeOptions): Scorer {
  let classifier: Promise<Classifier> | undefined;
  return async (sample) => {
    const classify = await (classifier ??= load(model));
    const scores = await classify(questionAndAnswer(sample), { top_k: 1000 });
    const found = label === undefined ? scores[0] : scores.find((score) => score.label === label);
    if (found) return found.score;
    throw new InputError(
      `The reward model ${model} has no label "${label}". It has ${scores.map((score) => score.label).join(', ')}.`,
    );
  };
}

/** Returns greedy replies of a transformers.js chat model, which is loaded at the first prompt. */
export function generatorCompletion(
  model: string,
  limits: { maxPromptLength: number; maxNewTokens: number },
): Completion {
  let reply: Promise<Completion> | undefined;
  return async (prompt) => {
    reply ??= import('./transformersModels.ts').then(({ openGenerator }) => openGenerator(model, limits));
    return (await reply)(prompt);
  };
}

/** Imports transformers.js code only in runs that use such a model. */
async function loadClassifier(model: string): Promise<Classifier> {
  return (await import('./transformersModels.ts')).openClassifier(model);
}

interface JudgeOptions {
  /**
   * Completes a prompt with the judge's own engine and tokenizer, greedy. Returns undefined if it cannot; the sample
   * then has no score.
   */
  complete: Completion;
  /** Returns the question to the judge; its answer must contain a number from 0 to `max`. */
  prompt?: (sample: ScoredSample) => string;
  max?: number;
}

/** Scores by the first number in the judge's answer, divided by `max`. 0 if missing or out of range, NaN without an answer. */
export function judgeScorer({ complete, prompt = judgePrompt, max = 10 }: JudgeOptions): Scorer {
  return async (sample) => {
    const answer = await complete(prompt(sample));
    if (answer === undefined) return NaN;
    const number = /-?\d+(\.\d+)?/.exec(answer)?.[0];
    const value = Number(number);
    return number !== undefined && value >= 0 && value <= max ? value / max : 0;
  };
}

/**
 * Returns the rule's reward plus weight x score of every scorer. Outcome and named numbers stay the rule's, and each score is
 * reported under its name. Scorers run concurrently. A scorer without a score for a sample returns NaN and is skipped in its
 * sum. Throws if a score is infinite.
 */
export function addScores(
  rule: RewardFunction,
  scorers: Record<string, { weight: number; score: Scorer }>,
  ruleWeight = 1,
): RewardFunction {
  return async (sample): Promise<Reward> => {
    const [base, ...values] = await Promise.all([
      rule(sample),
      ...Object.entries(scorers).map(async ([name, { score }]) => finite(name, await score(sample))),
    ]);
    const names = Object.keys(scorers);
    const added = names.reduce(
      (sum, name, i) => sum + (Number.isNaN(values[i]) ? 0 : scorers[name].weight * values[i]),
      0,
    );
    const extra = { ...base.extra, ...Object.fromEntries(names.map((name, i) => [name, values[i]])) };
    return { ...base, score: ruleWeight * base.score + added, extra };
  };
}

function finite(name: string, value: number): number {
  if (Number.isFinite(value) || Number.isNaN(value)) return value;
  throw new RangeError(`The scorer "${name}" gave ${value}; allowed: a finite number, or NaN for none.`);
}

const questionAndAnswer = (sample: ScoredSample) => `${question(sample)}\n${sample.response}`;
const judgePrompt = (sample: ScoredSample) => fillJudgePrompt(JUDGE_PROMPT, sample);
