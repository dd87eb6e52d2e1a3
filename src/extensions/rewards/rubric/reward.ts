/** The reward of a rubric. It scores each criterion by the probabilities of the judge's choices. */

import type { Reward, ScoredSample, Task } from '../../../tasks/task.ts';
import { addToRule } from '../modelReward.ts';
import { batched, type RubricJudge } from './judge.ts';
import type { RubricInput } from '../../../grpo/config/schema/reward.ts';
import { parseRubric, type Criterion } from './parse.ts';
import { judgedSample, type JudgedSample } from './prompt.ts';

/** Settings of a rubric's judge, and the rule to which the rubric's score is added. */
export interface RubricOptions {
  /** The judge, or a function that opens it at the first sample; see engineJudge and transformersJudge. */
  judge: RubricJudge | (() => Promise<RubricJudge>);
  /** Maximum number of tokens of a prompt with its reply. If a sample needs more, it is not judged and has no reward. Default: 512. */
  maxPromptLength?: number;
  /** Maximum number of samples in one call of the judge. Default: 16. */
  maxNumSeqs?: number;
  /** Rule whose score is added to that of the rubric, such as a task's own reward. Default: only the rubric, and acc is NaN. */
  rule?: Task['reward'];
  /** Weight of the rule's score. Default: 1. */
  ruleWeight?: number;
  /** Data source of problems without a `dataSource`, for criteria with `when`. A run sets the task's name, as for metrics. Default: none. */
  dataSource?: string;
}

/** Verdict of the judge on one criterion of a sample. */
export interface Verdict {
  /** Sum over choices of probability x the choice's score, from 0 to 1. */
  score: number;
  /** The most likely choice, and its probability. */
  choice: string;
  probability: number;
  /** Probability that the judge, if not constrained, would reply with exactly one of the choices. */
  mass: number;
}

/**
 * Creates a task's `reward` from a rubric:
 *
 *   reward = ruleWeight * rule + sum over criteria of weight * score
 *   score  = sum over choices of p(choice) * the choice's own score
 *   p(choice) = exp(l(choice)) / sum over the criterion's choices of exp(l)
 *   l(choice) = sum over the reply's tokens, its end-of-turn token among them, of log p(token | prompt, tokens before)
 *
 * `extra` of the reward has each score under the name of its criterion, the verdict as a text (`<name>_verdict`), and `rubric_mass`.
 * `weights` has the criteria's weights, for gdpo. Criteria that do not apply to a sample are skipped. A sample whose prompt is too long has
 * no reward. Throws InputError if the rubric is invalid. The reward rejects with what the judge throws.
 */
export function rubricReward(
  rubric: RubricInput,
  { judge, maxPromptLength = 512, maxNumSeqs = 16, rule, ruleWeight = 1, dataSource = '' }: RubricOptions,
): Task['reward'] {
  const parsed = parseRubric(rubric);
  let opened: Promise<RubricJudge> | undefined;
  const open = () => (opened ??= typeof judge === 'function' ? judge() : Promise.resolve(judge));
  const decide = batched(maxNumSeqs, async (items: JudgedSample[]) => {
    const sums = await (await open()).logProbs(items.flatMap(({ groups }) => groups));
    let first = 0;
    return items.map(({ criteria, groups, places }) => {
      const from = first;
      first += groups.length;
      return criteria.map((criterion, i) =>
        verdictOf(
          criterion,
          places[i].map(({ group, sample }) => sums[from + group][sample]),
        ),
      );
    });
  });
  const judged = async (sample: ScoredSample): Promise<Reward> => {
    const problem = { ...sample.problem, dataSource: sample.problem.dataSource ?? dataSource };
    const asked = judgedSample(parsed, { ...sample, problem }, (await open()).tokenizer, maxPromptLength);
    if (typeof asked === 'number') return notJudged(asked, maxPromptLength);
    const { criteria } = asked;
    return rewardOf(criteria, criteria.length === 0 ? [] : await decide(asked));
  };
  if (!rule) return judged;
  return async (sample) => {
    const [base, added] = await Promise.all([rule(sample), judged(sample)]);
    return addToRule(base, ruleWeight, added);
  };
}

/**
 * Computes the verdict on a criterion.
 * @param logProbs log-probs of the criterion's choices, in their order
 */
function verdictOf({ choices }: Criterion, logProbs: readonly number[]): Verdict {
  const most = Math.max(...logProbs);
  const shares = logProbs.map((logp) => Math.exp(logp - most));
  const total = shares.reduce((sum, share) => sum + share, 0);
  const score = Object.values(choices).reduce((sum, worth, k) => sum + (worth * shares[k]) / total, 0);
  const likeliest = logProbs.indexOf(most);
  const mass = Math.min(
    1,
    logProbs.reduce((sum, logp) => sum + Math.exp(logp), 0),
  );
  return { score, choice: Object.keys(choices)[likeliest], probability: 1 / total, mass };
}

function rewardOf(criteria: readonly Criterion[], verdicts: readonly Verdict[]): Reward {
  const extra: Record<string, number | string> = {};
  criteria.forEach(({ name }, i) => {
    const { score, choice, probability, mass } = verdicts[i];
    extra[name] = score;
    extra[`${name}_verdict`] = `${choice} ${probability.toFixed(3)} (mass ${mass.toPrecision(2)})`;
  });
  if (verdicts.length > 0) extra['rubric_mass'] = verdicts.reduce((sum, { mass }) => sum + mass, 0) / verdicts.length;
  const score = criteria.reduce((sum, { weight }, i) => sum + weight * verdicts[i].score, 0);
  return { score, acc: NaN, extra, weights: Object.fromEntries(criteria.map(({ name, weight }) => [name, weight])) };
}

/**
 * Returns a reward without a score for a sample that is too long to be judged. With a score of 0, a sample could avoid criteria of negative
 * weight by being too long.
 */
const notJudged = (length: number, most: number): Reward => ({
  score: NaN,
  acc: NaN,
  extra: { rubric: `not judged: the prompt has ${length} tokens or more, over reward.judge.maxPromptLength ${most}` },
});
