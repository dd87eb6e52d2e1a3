/**
 * Scores a sample with the task's reward function. That is user code: it can throw, never resolve, or return anything.
 */

import { blame, isA, shownValue as shown, UserCodeError } from '../../errors.ts';
import type { AgentLoopOutput } from '../../rollout/agent/loop.ts';
import { TimeLimitError, withTimeLimit } from '../../rollout/tools/run.ts';
import type { Trajectory } from '../../rollout/types.ts';
import type { Problem, Reward, ScoredSample, Task } from '../../tasks/task.ts';
import { turnCount } from '../advantages/turns.ts';
import type { GenerateOptions } from './options.ts';

/** Largest allowed reward, the largest float32: advantages are trained in float32. */
export const LARGEST_REWARD = 3.4028234663852886e38;

const MISSING: Reward = { score: NaN, acc: NaN };
const EXPECTED = 'Return { score, acc }, or a promise of it';

interface Scored {
  reward: Reward;
  /** Error of the reward function if `onError` is 'skip'; the sample then has no reward. */
  fault?: UserCodeError;
}

type ScoreOptions = Pick<GenerateOptions, 'globalStep' | 'rewardTimeoutMs' | 'signal' | 'onError' | 'onFault'> & {
  task: Pick<Task, 'reward'>;
};

/** Fields that scoring reads from a finished sample. */
type Ended = Pick<AgentLoopOutput, 'messages' | 'trajectory' | 'fault'> &
  Partial<Pick<ScoredSample, 'toolRewards' | 'turnRewards' | 'toolStates' | 'state'>>;

/** Returns the reward of a sample. Throws UserCodeError if the reward function fails, unless `onError` is 'skip'. */
export async function score(
  { task, globalStep, rewardTimeoutMs, signal, onError, onFault }: ScoreOptions,
  problem: Problem,
  { messages, trajectory, toolRewards, turnRewards, toolStates, state, fault }: Ended,
): Promise<Scored> {
  const skip = (error: UserCodeError): Scored => {
    onFault?.(error);
    return { reward: MISSING, fault: error };
  };
  if (fault) return skip(fault);
  const sample: ScoredSample = {
    problem,
    messages,
    ...(toolRewards && { toolRewards }),
    ...(turnRewards && { turnRewards }),
    ...(toolStates && { toolStates }),
    state,
    ...(globalStep !== undefined && { globalStep }),
    response: messages.findLast((m) => m.role === 'assistant')?.content ?? '',
    stopReason: trajectory.stopReason,
    numTurns: trajectory.numTurns,
    numToolCalls: trajectory.numToolCalls,
    numToolErrors: trajectory.numToolErrors,
    responseTokens: trajectory.responseIds.length,
  };
  try {
    return { reward: checkedReward(await timedReward(task, sample, rewardTimeoutMs, signal), problem, trajectory) };
  } catch (error) {
    if (signal?.aborted) return { reward: MISSING }; // nothing awaits the result of an aborted sample
    const blamed = blame('reward', nameOf(problem), error, EXPECTED);
    if (onError !== 'skip' || !(blamed instanceof UserCodeError)) throw blamed;
    return skip(blamed);
  }
}

/** Returns the result of the task's reward. Throws UserCodeError if that takes too long; `signal` ends the wait. */
export async function timedReward(
  task: Pick<Task, 'reward'>,
  sample: ScoredSample,
  timeoutMs = Infinity,
  signal = new AbortController().signal,
): Promise<Reward> {
  try {
    return await withTimeLimit('reward', () => task.reward(sample), timeoutMs, signal);
  } catch (error) {
    if (!isA(error, TimeLimitError)) throw error;
    const message = `${nameOf(sample.problem)} did not resolve in ${timeoutMs / 1000} s (reward.timeoutS). ${EXPECTED}.`;
    throw new UserCodeError('reward took too long', message);
  }
}

const nameOf = ({ id }: Problem) => `The reward of problem "${id}"`;

/**
 * Returns a copy of what the reward function returned, so that the task's code cannot change the reward later. Throws
 * UserCodeError if it is not a reward.
 */
function checkedReward(returned: Reward, problem: Problem, trajectory: Trajectory): Reward {
  const wrong = (what: string): UserCodeError => new UserCodeError('reward returned', `${nameOf(problem)} ${what}`);
  if (typeof returned !== 'object' || returned === null) throw wrong(`is ${shown(returned)}. ${EXPECTED}.`);
  const reward = { ...returned };
  const range = `a finite number of at most ${LARGEST_REWARD.toPrecision(2)} (float32)`;
  if (!isAmount(reward.score))
    throw wrong(`is ${shown(reward.score)}. Give ${range}, or NaN if there is none for this sample.`);
  if (!isAmount(reward.acc))
    throw wrong(`has the acc ${shown(reward.acc)}. Give 1 for right, 0 for wrong, or NaN if unknown.`);
  if (reward.pred !== undefined && typeof reward.pred !== 'string')
    throw wrong(`has the pred ${shown(reward.pred)}. Give the answer as a text, or remove it.`);
  for (const [name, value] of Object.entries(entriesOf(reward.extra, 'extra', wrong)))
    if (typeof value !== 'string' && !isAmount(value))
      throw wrong(`has extra.${name} ${shown(value)}. Give ${range}, NaN if it does not apply, or a text.`);
  for (const [name, value] of Object.entries(entriesOf(reward.weights, 'weights', wrong)))
    if (!Number.isFinite(value)) throw wrong(`has weights.${name} ${shown(value)}. Give a finite number.`);
  checkTurns(reward.turns, trajectory, wrong);
  return reward;
}

/** True for a number that can be reported and trained on: within float32's range, or NaN if missing. */
const isAmount = (value: unknown): boolean => typeof value === 'number' && !(Math.abs(value) > LARGEST_REWARD);

function entriesOf(values: unknown, name: string, wrong: (what: string) => Error): Record<string, unknown> {
  if (values === undefined) return {};
  if (typeof values === 'object' && values !== null) return values as Record<string, unknown>;
  throw wrong(`has the ${name} ${shown(values)}. Give values by name, or remove it.`);
}

/** Throws unless `turns` has a number or NaN for every trained turn. */
function checkTurns(turns: unknown, { mask }: Trajectory, wrong: (what: string) => Error): void {
  if (turns === undefined) return;
  const rule = 'Give one number for every assistant turn, 0 or NaN if there is none.';
  if (!Array.isArray(turns)) throw wrong(`has the turns ${shown(turns)}. ${rule}`);
  const trained = turnCount(mask);
  const fault = (turn: number, what: string) =>
    wrong(
      `has ${what} for turn ${turn + 1} of ${trained}: its \`turns\` are [${turns.map(shown).join(', ')}]. ${rule}`,
    );
  const bad = turns.findIndex((value) => !isAmount(value));
  if (bad >= 0) throw fault(bad, shown(turns[bad]));
  if (turns.length < trained) throw fault(turns.length, 'no number');
}
