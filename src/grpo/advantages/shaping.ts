/**
 * Changes to rewards, masks and coefficients before the loss: length penalties, overlong filtering, and the adaptive
 * entropy bonus.
 */

import { type GroupId, indicesByGroup, mean } from './outcome.ts';

/**
 * Returns DAPO's soft overlong punishment (arXiv:2503.14476, eq. 13): 0 up to maxResponseLength - bufferLen tokens,
 * then linear down to -penaltyFactor at the limit. The caller adds it to the score.
 */
export function overlongPenalty(
  responseTokens: number,
  {
    maxResponseLength,
    bufferLen,
    penaltyFactor = 1,
  }: { maxResponseLength: number; bufferLen: number; penaltyFactor?: number },
): number {
  if (bufferLen <= 0) return 0;
  if (bufferLen > maxResponseLength) {
    throw new RangeError(
      `overlongBufferLen is ${bufferLen} but answers have at most ${maxResponseLength} tokens. Lower it to at most that.`,
    );
  }
  const over = responseTokens - (maxResponseLength - bufferLen);
  return Math.min((-over / bufferLen) * penaltyFactor, 0) + 0; // + 0 turns -0 into 0
}

/** Lengths of a sample, for `lengthPenalties`. */
interface SampleLength {
  /** Number of tokens that the policy sampled. */
  outputTokens: number;
  /** Number of tokens that the policy did not sample: prompt and tool outputs. */
  inputTokens: number;
  turns: number;
}

/** Weights of prime-rl's linear length penalty. */
interface LengthPenalty {
  numOutputTokensWeight: number;
  numInputTokensWeight: number;
  numTurnsWeight: number;
}

/**
 * Returns prime-rl's linear length penalty of each sample; the caller subtracts it from the reward. Penalty = mean
 * reward of the group x sum over the three lengths of weight x length / largest length in the group. The mean reward
 * scales it, so that only problems which the policy can solve are pushed towards fewer tokens. It is 0 for samples
 * without a reward, which do not count, and for groups whose mean reward is not above 0.
 */
export function lengthPenalties(
  rewards: ArrayLike<number>,
  groups: ArrayLike<GroupId>,
  lengths: readonly SampleLength[],
  { numOutputTokensWeight, numInputTokensWeight, numTurnsWeight }: LengthPenalty,
): Float64Array {
  const penalties = new Float64Array(rewards.length);
  for (const members of indicesByGroup(rewards, groups)) {
    const passRate = Math.max(mean(members.map((i) => rewards[i])), 0);
    const share = (i: number, length: (of: SampleLength) => number) =>
      length(lengths[i]) / Math.max(1, ...members.map((m) => length(lengths[m])));
    for (const i of members)
      penalties[i] =
        passRate *
        (numOutputTokensWeight * share(i, (of) => of.outputTokens) +
          numInputTokensWeight * share(i, (of) => of.inputTokens) +
          numTurnsWeight * share(i, (of) => of.turns));
  }
  return penalties;
}

/** Stop reasons of samples that the policy did not end itself. */
const TRUNCATED = ['max_tokens', 'max_turns', 'max_tool_calls', 'context_overflow', 'timeout', 'aborted'];

/** Returns the masks, with those of truncated samples set to 0 (DAPO's overlong filtering). */
export function maskTruncated(masks: readonly ArrayLike<number>[], stopReasons: readonly string[]): Float64Array[] {
  return masks.map((mask, s) => Float64Array.from(mask, (m) => (TRUNCATED.includes(stopReasons[s]) ? 0 : m)));
}

/**
 * State of TRL's adaptive entropy bonus: the coefficient rises while the entropy is at or below its target, and falls
 * otherwise.
 */
interface EntropyController {
  /** Current coefficient. It applies only if the last entropy was at or below the target. */
  entropyCoeff: number;
  /** Target entropy in nats per token. */
  entropyTarget: number;
  entropyCoeffDelta: number;
  entropyCoeffMin: number;
  entropyCoeffMax: number;
}

/** Returns the state after a step whose mean token entropy was `entropy`, with the coefficient of the next step. */
export function updateEntropy(
  controller: EntropyController,
  entropy: number,
): { controller: EntropyController; coeff: number } {
  const low = entropy <= controller.entropyTarget;
  const moved = controller.entropyCoeff + (low ? 1 : -1) * controller.entropyCoeffDelta;
  const entropyCoeff = Math.min(Math.max(moved, controller.entropyCoeffMin), controller.entropyCoeffMax);
  return { controller: { ...controller, entropyCoeff }, coeff: low ? entropyCoeff : 0 };
}
