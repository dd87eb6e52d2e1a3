/**
 * Rewards by models, and their combination with rule-based rewards. A discriminative model scores a conversation through a transformers.js
 * pipeline. A generative judge can be any function that completes a prompt.
 */

import { InputError } from '../../errors.ts';
import { fillJudgePrompt, JUDGE_PROMPT, question } from '../../tasks/rewards/judgePrompt.ts';
import type { Reward, ScoredSample, Task } from '../../tasks/task.ts';
import type { Classifier, Completion } from './transformersModels.ts';

export type { Classifier, Completion } from './transformersModels.ts';

type RewardFunction = Task['reward'];

/** Returns the score of a sample; NaN if the scorer has none. */
export type Scorer = (sample: ScoredSample) => number | Promise<number>;

interface DiscriminativeOptions {
  /** Folder or name of an ONNX model. */
  model: string;
  /** Label whose probability is the score. Default: the most likely one. */
  label?: string;
  /** Opens the classifier. Default: with transformers.js. */
  load?: (model: string) => Promise<Classifier>;
}

/**
 * Returns a scorer: the score is the probability of a label, from a model that reads the question and the last answer. The score is NaN if
 * they are too long for the model. The model is loaded at the first sample.
 */
export function discriminativeScorer({ model, label, load = loadClassifier }: DiscriminativeOptions): Scorer {
  let classifier: Promise<Classifier> | undefined;
  return async (sample) => {
    const classify = await (classifier ??= load(model));
    const scores = await classify(questionAndAnswer(sample), { top_k: 1000 });
    if (!scores) return NaN;
    const found = label === undefined ? scores[0] : scores.find((score) => score.label === label);
    if (found) return found.score;
    throw new InputError(
      `The reward model ${model} has no label "${label}". It has ${scores.map((score) => score.label).join(', ')}.`,
    );
  };
}

/** Returns a function for greedy replies of a transformers.js chat model, which is loaded at the first prompt. */
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

/** Imports the code that uses transformers.js. Only runs with a reward model or judge on transformers.js load it. */
async function loadClassifier(model: string): Promise<Classifier> {
  return (await import('./transformersModels.ts')).openClassifier(model);
}

interface JudgeOptions {
  /**
   * Completes a prompt greedily with the judge's own engine and tokenizer. Returns undefined if it cannot; the sample then has no score.
   */
  complete: Completion;
  /** Returns the prompt for the judge. It must ask for a number from 0 to `max`. */
  prompt?: (sample: ScoredSample) => string;
  max?: number;
}

/**
 * Scores by the first number in the judge's answer, divided by `max`. The score is 0 if that number is missing or out of range, and NaN
 * without an answer.
 */
export function judgeScorer({ complete, prompt = judgePrompt, max = 10 }: JudgeOptions): Scorer {
  return async (sample) => {
    const answer = await complete(prompt(sample));
    if (answer === undefined) return NaN;
    const number = /-?(\d+(\.\d+)?|\.\d+)/.exec(answer)?.[0];
    const value = Number(number);
    return number !== undefined && value >= 0 && value <= max ? value / max : 0;
  };
}

/** A scorer, its weight in the reward, and the text that a sample gets in place of a score of NaN. */
interface WeightedScorer {
  weight: number;
  score: Scorer;
  unscored?: string;
}

/**
 * Returns the rule's reward plus weight x score of every scorer. The outcome and the named numbers are those of the rule. Each score is
 * reported under the name of its scorer. Scorers run concurrently. A sample for which a scorer returns NaN has no reward: with 0 instead,
 * it would be compared with samples that were scored. Throws if a score is infinite.
 */
export function addScores(
  rule: RewardFunction,
  scorers: Record<string, WeightedScorer>,
  ruleWeight = 1,
): RewardFunction {
  return async (sample): Promise<Reward> => {
    const [base, ...values] = await Promise.all([
      rule(sample),
      ...Object.entries(scorers).map(async ([name, { score }]) => finite(name, await score(sample))),
    ]);
    const names = Object.keys(scorers);
    const reported = (name: string, value: number) => (Number.isNaN(value) && scorers[name].unscored) || value;
    return addToRule(base, ruleWeight, {
      score: names.reduce((sum, name, i) => sum + scorers[name].weight * values[i], 0),
      extra: Object.fromEntries(names.map((name, i) => [name, reported(name, values[i])])),
      weights: Object.fromEntries(names.map((name) => [name, scorers[name].weight])),
    });
  };
}

/**
 * Adds a reward by models to the rule's reward, whose outcome and named numbers are kept. The score of a rule without weights becomes the
 * named reward `rule`, so that gdpo can weight it. Throws InputError if both give a value of one name.
 */
export function addToRule(
  base: Reward,
  ruleWeight: number,
  { score, extra = {}, weights }: Pick<Reward, 'score' | 'extra' | 'weights'>,
): Reward {
  const added = { ...(!base.weights && { rule: base.score }), ...extra };
  const twice = Object.keys(added).find((name) => Object.hasOwn(base.extra ?? {}, name));
  if (twice !== undefined)
    throw new InputError(
      `The task's reward and the reward by models both give a value of the name "${twice}". Rename the task's, or the criterion.`,
    );
  const own = base.weights ?? { rule: 1 };
  return {
    ...base,
    score: ruleWeight * base.score + score,
    ...(Array.isArray(base.turns) && { turns: base.turns.map((turn) => ruleWeight * turn) }),
    extra: { ...base.extra, ...added },
    weights: {
      ...Object.fromEntries(Object.entries(own).map(([name, weight]) => [name, weight * ruleWeight])),
      ...weights,
    },
  };
}

function finite(name: string, value: number): number {
  if (Number.isFinite(value) || Number.isNaN(value)) return value;
  throw new RangeError(`The scorer "${name}" gave ${value}; allowed: a finite number, or NaN for none.`);
}

const questionAndAnswer = (sample: ScoredSample) => `${question(sample)}\n${sample.response}`;
const judgePrompt = (sample: ScoredSample) => fillJudgePrompt(JUDGE_PROMPT, sample);
