/** Converts rules in a sandbox to rewards, losses and tools of a trainer. */

import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { AsyncCustomLoss } from '../../src/grpo/losses/types.ts';
import type { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { LoggedRollout } from '../../src/runs/rollouts.ts';
import { Rule, type RuleKind, type RuleTokens, type RuleTry, toolOf } from '../../src/extensions/modules/index.ts';
import { InputError } from '../../src/errors.ts';
import type { Message, ScoredSample, Task } from '../../src/tasks/task.ts';
import type { Tool } from '../../src/tasks/tool.ts';
import type { Rules } from '../../src/grpo/live.ts';
import type { AskedRule } from '../storage/runChanges.ts';

/** A rule whose text was loaded. */
export interface OpenRule {
  kind: RuleKind;
  of: AskedRule;
  rule: Rule<RuleKind>;
  /** The tool, if the rule is of kind 'tool'. */
  tool?: Tool;
  /** True if the rule failed in a step. A failed rule is not called again. */
  failed?: boolean;
}

type Failed = (error: unknown) => void;

/** Loads a rule. Throws InputError. */
export async function openRule(kind: RuleKind, of: AskedRule): Promise<OpenRule> {
  const rule: Rule<RuleKind> = await Rule.open(kind, of.code);
  try {
    return { kind, of, rule, ...(kind === 'tool' && { tool: await toolOf(rule as Rule<'tool'>) }) };
  } catch (error) {
    rule.close();
    throw error;
  }
}

/** Returns the rules as options of a trainer. Throws InputError. @param failed called when a rule fails in a step */
export function rulesOf(
  trainer: GrpoTrainer,
  task: Task,
  open: ReadonlyMap<RuleKind, OpenRule>,
  failed: (of: OpenRule, error: unknown) => void,
): Rules {
  const [reward, loss, tool] = (['reward', 'loss', 'tool'] as const).map((kind) => open.get(kind));
  if (reward) expectScoreCounts(trainer.config);
  const hears = (of: OpenRule) => (error: unknown) => failed(of, error);
  return {
    reward: reward && rewardBy(task, reward, hears(reward)),
    loss: loss && lossBy(trainer, loss, hears(loss)),
    tools: tool?.tool && withTool(task, tool.tool),
  };
}

/** Throws InputError if a run learns from the named numbers of its task's reward, which another reward does not have. */
function expectScoreCounts({ algorithm: { advEstimator }, reward: { weights } }: TrainConfig): void {
  const by =
    advEstimator === 'gdpo'
      ? 'algorithm.advEstimator is "gdpo"'
      : Object.keys(weights).length > 0
        ? 'reward.weights is set'
        : undefined;
  if (by !== undefined)
    throw new InputError(
      `The reward cannot be replaced, because ${by}: the run learns from the named numbers of the task's reward, not from its score.`,
    );
}

/** Returns a shown try as input of a rule. */
export function tryOf({ answer, messages, promptMessages, numToolCalls, responseTokens, acc }: LoggedRollout): RuleTry {
  const said = messages.slice(promptMessages);
  return { answer, ...saidIn(said), toolCalls: numToolCalls, tokens: responseTokens, correct: acc === 1 };
}

function tryOfSample({ problem, messages, numToolCalls, responseTokens }: ScoredSample, acc: number): RuleTry {
  const { answer } = problem;
  return { answer, ...saidIn(messages), toolCalls: numToolCalls, tokens: responseTokens, correct: acc === 1 };
}

function saidIn(messages: readonly Message[]): Pick<RuleTry, 'text' | 'messages'> {
  const own = messages.filter(({ role }) => role === 'assistant');
  return {
    text: own.map(({ content }) => content).join('\n'),
    messages: messages.map(({ role, content }) => ({ role, content })),
  };
}

/**
 * Returns a reward with the rule's score for the whole answer and the task's own verdict. Tries that are scored at the same time enter the
 * sandbox together.
 */
export function rewardBy(task: Task, of: OpenRule, failed: Failed): Task['reward'] {
  const scoreOf = inBatches(of, failed);
  return async (sample) => {
    const own = await task.reward(sample);
    const { weights: _, turns: __, ...rest } = own;
    return { ...rest, score: await scoreOf(tryOfSample(sample, own.acc)) };
  };
}

/** Scores tries in batches. The score is NaN for the tries on which the rule fails and for all later ones. */
function inBatches(of: OpenRule, failed: Failed): (tried: RuleTry) => Promise<number> {
  let waiting: { tried: RuleTry; tell: (score: number) => void }[] = [];
  let busy = false;
  const work = async () => {
    busy = true;
    while (waiting.length > 0) {
      const batch = waiting;
      waiting = [];
      const scores = await scored(
        of,
        batch.map(({ tried }) => tried),
        failed,
      );
      batch.forEach(({ tell }, i) => tell(scores[i]));
    }
    busy = false;
  };
  return (tried) =>
    new Promise((tell) => {
      waiting.push({ tried, tell });
      if (!busy) void work();
    });
}

async function scored(of: OpenRule, tries: readonly RuleTry[], failed: Failed): Promise<number[]> {
  if (!of.failed) {
    try {
      return await (of.rule as Rule<'reward'>).run(tries);
    } catch (error) {
      failed(error);
    }
  }
  return tries.map(() => NaN);
}

/** Returns the rule's loss, multiplied by each token's weight. If the rule fails, the mini-batch gets no gradient from its tokens. */
export function lossBy(trainer: GrpoTrainer, of: OpenRule, failed: Failed): AsyncCustomLoss {
  return async ({ advantages, logProbs, oldLogProbs, entropy, weights }) => {
    const { clipRatioLow: clipLow, clipRatioHigh: clipHigh } = trainer.config.actor;
    const [a, now, old, entropies] = [advantages, logProbs, oldLogProbs, entropy].map((values) => Array.from(values));
    const tokens: RuleTokens = { advantages: a, logProbs: now, oldLogProbs: old, entropies, clipLow, clipHigh };
    try {
      if (of.failed) throw new Error('it failed before');
      const { losses, grads, entropyGrads } = await (of.rule as Rule<'loss'>).run(tokens);
      const loss = losses.reduce((sum, value, e) => sum + weights[e] * value, 0);
      const weighted = (values: readonly number[]) => weights.map((weight, e) => weight * values[e]);
      return { loss, dLogProbs: weighted(grads), dEntropy: weighted(entropyGrads) };
    } catch (error) {
      failed(error);
      return { loss: 0, dLogProbs: weights.map(() => 0) };
    }
  };
}

/**
 * Returns tokens to test a loss on. Their ratios are below, at and above the usual clip range, once with a positive and once with a
 * negative advantage.
 */
export function tokensToTry(): RuleTokens {
  const ratios = [0.5, 0.79, 1, 1.2, 2];
  const oldLogProbs = [...ratios, ...ratios].map(() => -1);
  return {
    advantages: [...ratios.map(() => 1), ...ratios.map(() => -1)],
    logProbs: [...ratios, ...ratios].map((ratio) => Math.log(ratio) - 1),
    oldLogProbs,
    entropies: oldLogProbs.map(() => 1),
    clipLow: 0.2,
    clipHigh: 0.28,
  };
}

/** Returns the task's tools with this one added, replacing any of the same name. Throws InputError if the tool is invalid. */
export function withTool({ tools = [], environments = [] }: Task, tool: Tool): Tool[] {
  const taken = environments.some((one) => one.name === tool.name || one.tools?.some(({ name }) => name === tool.name));
  if (taken) throw new InputError(`The task's environment already has a tool "${tool.name}". Choose another name.`);
  return [...tools.filter(({ name }) => name !== tool.name), tool];
}
