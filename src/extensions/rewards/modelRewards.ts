/**
 * Rewards by models that a config names. A judge (the reference policy or another checkpoint on our own engine, or a
 * chat model of transformers.js) returns a score, decides the criteria of a rubric, or both. A classifier of
 * transformers.js returns a score. A sample is scored when it ends, while others are still being generated.
 */

import { InputError, isA, UserCodeError } from '../../errors.ts';
import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { TimeLimitError, withTimeLimit } from '../../rollout/tools/run.ts';
import type { TurnEngine } from '../../rollout/types.ts';
import { withRewardWeights } from '../../tasks/rewards/combine.ts';
import { fillJudgePrompt, judgeTokenLen } from '../../tasks/rewards/judgePrompt.ts';
import {
  addScores,
  type Completion,
  discriminativeScorer,
  generatorCompletion,
  judgeScorer,
  type Scorer,
} from './modelReward.ts';
import { engineJudge, type RubricJudge } from './rubric/judge.ts';
import { parseRubric, type Rubric } from './rubric/parse.ts';
import { rubricReward } from './rubric/reward.ts';
import type { Task } from '../../tasks/task.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { GREEDY } from '../../grpo/generate/options.ts';
import { timedReward } from '../../grpo/generate/score.ts';
import type { TrainerEngine } from '../../grpo/types.ts';

/**
 * Returns the task with the weights of `config.reward`, and with the models' scores as additional named rewards:
 * `judge`, `model`, and one for each criterion of a rubric. Throws InputError for a rubric that cannot be read.
 */
export function withModelRewards(own: Task, config: TrainConfig, engine: TrainerEngine): Task {
  const { weights, ruleWeight, timeoutS, judge } = config.reward;
  const rubric = rubricOf(config);
  const isCriterion = (name: string) => rubric?.criteria.some((criterion) => criterion.name === name);
  const ofTask = Object.entries(weights).filter(([name]) => !isCriterion(name));
  const task = withRewardWeights(own, Object.fromEntries(ofTask));
  const rule: Task['reward'] = (sample) => timedReward(task, sample, timeoutS * 1000);
  const scorers = scorersOf(config, engine);
  // True if a judge or a classifier adds a score to the task's. `ruleWeight` is applied to the task's score once: in
  // that sum, or else by the rubric's reward, which adds its criteria.
  const summed = Object.keys(scorers).length > 0;
  const scored = summed ? addScores(rule, scorers, ruleWeight) : rule;
  if (!rubric) return { ...task, reward: scored };
  const criteria = rubric.criteria.map((criterion) => ({
    ...criterion,
    weight: weights[criterion.name] ?? criterion.weight,
  }));
  const { maxPromptLength, maxNumSeqs } = judge;
  const open = async () => inTime(await rubricJudge(config, engine), timeoutS);
  const options = { judge: open, maxPromptLength, maxNumSeqs, rule: scored, ruleWeight: summed ? 1 : ruleWeight };
  return { ...task, reward: rubricReward({ ...rubric, criteria }, { ...options, dataSource: own.name }) };
}

function rubricOf({ reward: { rubric } }: TrainConfig): Rubric | undefined {
  if (typeof rubric !== 'string') return rubric && parseRubric(rubric, 'reward.rubric');
  throw new InputError(
    `reward.rubric is the path ${rubric}, which only the command line reads. Give the rubric itself, with its criteria.`,
  );
}

/** Reward models that return one number per sample, by name. */
function scorersOf({ reward: { judge, model } }: TrainConfig, engine: TrainerEngine): Parameters<typeof addScores>[1] {
  const ownCompletion = () => {
    if (engine.judge) return engineCompletion(engine.judge, engine.judgeTokenizer ?? engine.tokenizer, judge);
    throw new Error('reward.judge.weight is set, but the engine was made without a judge.');
  };
  const scorers: Parameters<typeof addScores>[1] = {};
  if (judge.weight !== 0) {
    const prompt = (sample: Parameters<Scorer>[0]) => fillJudgePrompt(judge.prompt, sample);
    const complete = judge.path === undefined ? ownCompletion() : generatorCompletion(judge.path, judge);
    scorers['judge'] = {
      weight: judge.weight,
      score: judgeScorer({ complete, prompt, max: judge.max }),
      unscored: `not judged: the prompt has over reward.judge.maxPromptLength = ${judge.maxPromptLength} tokens`,
    };
  }
  if (model.path !== undefined) {
    const { path, label, weight } = model;
    scorers['model'] = {
      weight,
      score: discriminativeScorer({ model: path, ...(label !== undefined && { label }) }),
      unscored:
        'not judged: question and response have more tokens than reward.model.path takes (its model_max_length)',
    };
  }
  return scorers;
}

/** Returns the model that decides a rubric's criteria. Throws if the engine was created without such a model. */
async function rubricJudge({ reward, actor }: TrainConfig, engine: TrainerEngine): Promise<RubricJudge> {
  const { path, checkpoint } = reward.judge;
  if (path !== undefined) return (await import('./rubric/transformersJudge.ts')).transformersJudge(path);
  const own = checkpoint !== undefined;
  const model = own ? engine.judgeModel : engine.reference;
  if (!model)
    throw new Error(`reward.rubric is set, but the engine was made without a ${own ? 'judge' : 'reference'}.`);
  const rows = own ? judgeTokenLen(reward.judge.maxPromptLength) : actor.ppoMaxTokenLenPerGpu;
  return engineJudge(model, engine.judgeTokenizer ?? engine.tokenizer, rows);
}

/** Limits each call of the judge to reward.timeoutS; time in the queue does not count. */
function inTime(judge: RubricJudge, timeoutS: number): RubricJudge {
  const { signal } = new AbortController();
  return {
    ...judge,
    logProbs: (groups) =>
      withTimeLimit('The judge of the rubric', () => judge.logProbs(groups), timeoutS * 1000, signal).catch(
        (error: unknown) => {
          if (!isA(error, TimeLimitError)) throw error;
          throw new UserCodeError(
            'judge took too long',
            `${error.message} (reward.timeoutS). Raise it, lower reward.judge.maxNumSeqs, or use a smaller judge.`,
          );
        },
      ),
  };
}

/**
 * Returns greedy replies to user prompts. Names of control tokens in a prompt stay ordinary text. A reply is undefined
 * if its prompt is too long.
 */
export function engineCompletion(
  engine: TurnEngine,
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
