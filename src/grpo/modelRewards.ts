/**
 * Rewards by models, as a config asks for them: a judge (the reference policy on our own engine, or a chat model of
 * transformers.js) and a classifier of transformers.js. A sample is scored when it ends, while others still generate.
 */

import type { ChatTokenizer } from '../model/tokenizer/chat.ts';
import type { RolloutEngine } from '../rollout/types.ts';
import { fillJudgePrompt } from '../tasks/rewards/judgePrompt.ts';
import {
  addScores,
  type Completion,
  discriminativeScorer,
  generatorCompletion,
  judgeScorer,
  type Scorer,
} from '../tasks/rewards/modelReward.ts';
import type { Task } from '../tasks/task.ts';
import type { TrainConfig } from './config/types.ts';
import { GREEDY } from './generate/options.ts';

interface Judge {
  tokenizer: ChatTokenizer;
  /** Decodes with the reference's weights. */
  judge?: RolloutEngine;
}

/** The task, with the scores of `config.reward` added to its own and named `judge` and `model`; itself where none is on. */
export function withModelRewards(task: Task, { reward }: TrainConfig, { tokenizer, judge: engine }: Judge): Task {
  const { ruleWeight, judge, model } = reward;
  const ownCompletion = () => {
    if (engine) return engineCompletion(engine, tokenizer, judge);
    throw new Error('reward.judge.weight is set, but the engine was made without a judge.');
  };
  const scorers: Record<string, { weight: number; score: Scorer }> = {};
  if (judge.weight !== 0) {
    const prompt = (sample: Parameters<Scorer>[0]) => fillJudgePrompt(judge.prompt, sample);
    const complete = judge.path === undefined ? ownCompletion() : generatorCompletion(judge.path, judge);
    scorers['judge'] = { weight: judge.weight, score: judgeScorer({ complete, prompt, max: judge.max }) };
  }
  if (model.path !== undefined) {
    const { path, label, weight } = model;
    scorers['model'] = { weight, score: discriminativeScorer({ model: path, ...(label !== undefined && { label }) }) };
  }
  if (Object.keys(scorers).length === 0) return task;
  return { ...task, reward: addScores((sample) => task.reward(sample), scorers, ruleWeight) };
}

/** Greedy replies to prompts of a user; control tokens named in them stay text. Undefined for a prompt that is too long. */
export function engineCompletion(
  engine: RolloutEngine,
  tokenizer: ChatTokenizer,
  { maxPromptLength, maxNewTokens }: { maxPromptLength: number; maxNewTokens: number },
): Completion {
  let asked = 0;
  return async (prompt) => {
    const contextIds = tokenizer.encodeChat([{ role: 'user', content: prompt }]);
    const promptLength = contextIds.length;
    if (promptLength > maxPromptLength) return undefined;
    const requestId = `judge.${asked++}`;
    const sampling = { ...GREEDY, maxNewTokens, stopTokenIds: tokenizer.eosTokenIds };
    try {
      const { tokenIds } = await engine.generate({ requestId, contextIds, promptLength, key: [0, 0], sampling });
      return tokenizer.decode(tokenIds, { skipSpecialTokens: true });
    } finally {
      engine.release(requestId);
    }
  };
}
