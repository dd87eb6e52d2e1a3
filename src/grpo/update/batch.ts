/**
 * Converts the samples of a step to the inputs of the engine's training (mini-batches, weights, micro-batches), and the
 * engine's results back to arrays per sample.
 */

import type { UserCodeError } from '../../errors.ts';
import type { PolicyLossInputs } from '../../model/engine.ts';
import { type MicroBatch, packGroups } from '../../model/packing.ts';
import type { SampleEvent } from '../../rollout/agent/events.ts';
import type { Trajectory } from '../../rollout/types.ts';
import type { Message, Problem, Reward } from '../../tasks/task.ts';

/** One finished and scored sample. */
export interface Sample {
  /** Problem that the sample answers. */
  problem: Problem;
  /** Number of the prompt within the step; samples with the same number form a group. */
  group: number;
  /** Token ids with their mask and log-probs. */
  trajectory: Trajectory;
  /** Problem's messages with the environment's first observation, if it returned one. */
  prompt?: Message[];
  /** Decoded messages after the prompt: assistant turns, tool replies, and messages that the agent loop added. */
  messages: Message[];
  /** Result of the reward function. */
  reward: Reward;
  /** True if this row belongs to the same trajectory as the row before it; see rows.ts. */
  fork?: true;
  /** Mean advantage of the sample's trained tokens, for reports; set once the sample's group is complete. */
  advantage?: number;
  /** Rewards that tools returned, by tool, if there were any; see ScoredSample. */
  toolRewards?: Readonly<Record<string, number>>;
  /** Error because of which the sample has no reward (with trainer.onError: skip). */
  fault?: UserCodeError;
  /** Generation, tool calls and reward with their times, if `trainer.profile` is on. */
  events?: SampleEvent[];
}

/** Fields of a sample that packing reads. */
export interface PackedSample {
  group: number;
  trajectory: Pick<Trajectory, 'promptIds' | 'responseIds'>;
}

/** Values of each response token before an update; one array per sample, as long as its response. */
export interface SampleTokens {
  /** 1 = trained: sampled by the policy and not filtered out. */
  masks: ArrayLike<number>[];
  oldLogProbs: ArrayLike<number>[];
  advantages: ArrayLike<number>[];
  refLogProbs?: ArrayLike<number>[];
}

/** Entries (trained tokens) of a mini-batch in sample order, and their split into micro-batches. */
export interface MiniBatch {
  /** Indices of the mini-batch's samples among the samples of the step. */
  samples: number[];
  microBatches: MicroBatch[];
  /** Index of the first entry of each micro-batch. */
  offsets: number[];
  /** [E] sample (index into `samples`) and position in its response of every entry. */
  entrySample: Uint32Array;
  entryPosition: Uint32Array;
  /** [S + 1] index of the first entry of each sample that has entries; the last one is E. */
  seqStart: Uint32Array;
}

/**
 * Packs the given samples of a step. Samples of one group must be neighbours; those with the same prompt share its
 * rows.
 */
export function packMiniBatch(
  samples: readonly PackedSample[],
  chosen: number[],
  masks: ArrayLike<number>[],
  maxTokenLen: number,
  maxSequences?: number,
) {
  const groups: { prompt: Uint32Array; samples: { tokens: Uint32Array; mask: Uint8Array }[] }[] = [];
  const members: number[][] = [];
  let last: number | undefined;
  chosen.forEach((s, place) => {
    const { group, trajectory } = samples[s];
    // The prompts of a group can differ: an environment can start each sample with another observation, a client each
    // conversation with other messages.
    if (group !== last || !sameIds(trajectory.promptIds, groups.at(-1)!.prompt)) {
      groups.push({ prompt: trajectory.promptIds, samples: [] });
      members.push([]);
    }
    last = group;
    groups
      .at(-1)!
      .samples.push({ tokens: trajectory.responseIds, mask: Uint8Array.from(masks[s], (m) => (m ? 1 : 0)) });
    members.at(-1)!.push(place);
  });
  const microBatches = packGroups(groups, maxTokenLen, maxSequences);
  return describe(chosen, members, microBatches);
}

/** True if both arrays have the same token ids. */
export const sameIds = (a: Uint32Array, b: Uint32Array): boolean =>
  a === b || (a.length === b.length && a.every((id, i) => id === b[i]));

function describe(chosen: number[], members: number[][], microBatches: MicroBatch[]): MiniBatch {
  const offsets: number[] = [];
  let count = 0;
  for (const { batch } of microBatches) {
    offsets.push(count);
    count += batch.targets.length;
  }
  const entrySample = new Uint32Array(count);
  const entryPosition = new Uint32Array(count);
  const starts: number[] = [];
  microBatches.forEach((micro, m) => {
    micro.entryPosition.forEach((position, e) => {
      const at = offsets[m] + e;
      entrySample[at] = members[micro.entryGroup[e]][micro.entrySample[e]];
      entryPosition[at] = position;
      if (at === 0 || entrySample[at] !== entrySample[at - 1]) starts.push(at);
    });
  });
  const seqStart = Uint32Array.from([...starts, count]);
  return { samples: chosen, microBatches, offsets, entrySample, entryPosition, seqStart };
}

/** Returns the values of every entry, taken from one array per sample. */
export function gatherEntries(batch: MiniBatch, perSample: readonly ArrayLike<number>[]): Float32Array<ArrayBuffer> {
  const { samples, entrySample, entryPosition } = batch;
  return Float32Array.from(entrySample, (s, e) => perSample[samples[s]][entryPosition[e]]);
}

/**
 * Inverse of `gatherEntries`: returns one array per sample of the batch, as long as the sample's array in `like`; 0 at
 * positions without an entry.
 */
export function scatterEntries(
  { entrySample, entryPosition }: MiniBatch,
  values: ArrayLike<number>,
  like: readonly ArrayLike<number>[],
): Float64Array[] {
  const out = like.map(({ length }) => new Float64Array(length));
  entrySample.forEach((s, e) => (out[s][entryPosition[e]] = values[e]));
  return out;
}

/** Part of a mini-batch's loss inputs that belongs to micro-batch m. */
export function sliceInputs(batch: MiniBatch, m: number, inputs: PolicyLossInputs): PolicyLossInputs {
  const part = (values: Float32Array) => sliceEntries(batch, m, values);
  return {
    oldLogProbs: part(inputs.oldLogProbs),
    advantages: part(inputs.advantages),
    weights: part(inputs.weights),
    klWeights: part(inputs.klWeights),
    ...(inputs.entropyWeights && { entropyWeights: part(inputs.entropyWeights) }),
    ...(inputs.refLogProbs && { refLogProbs: part(inputs.refLogProbs) }),
    ...(inputs.mask && { mask: part(inputs.mask) }),
    ...(inputs.selected && { selected: part(inputs.selected) }),
  };
}

/** Part of a mini-batch's values that belongs to micro-batch m. */
export function sliceEntries({ offsets, entrySample }: MiniBatch, m: number, values: Float32Array): Float32Array {
  return values.slice(offsets[m], offsets[m + 1] ?? entrySample.length);
}

/** Puts the arrays of the chosen samples at their index in the step; all other samples have an empty array. */
export function placeByStep<T extends ArrayLike<number>>(samples: number, chosen: number[], values: T[]) {
  const all: (T | Float64Array)[] = Array.from({ length: samples }, () => new Float64Array(0));
  chosen.forEach((s, i) => (all[s] = values[i]));
  return all;
}

/** Number of trained tokens of a sample. */
export const trainedCount = (mask: ArrayLike<number>): number => Array.from(mask).filter((m) => m !== 0).length;

/**
 * Throws RangeError for a token id beyond the vocabulary, for which the GPU would read the embedding of another token.
 */
export function checkTokens(samples: readonly Sample[], vocabSize: number): void {
  for (const { problem, trajectory } of samples)
    for (const ids of [trajectory.promptIds, trajectory.responseIds]) {
      const bad = ids.find((id) => id >= vocabSize);
      if (bad !== undefined)
        throw new RangeError(
          `A sample of problem "${problem.id}" has token ${bad}, but the model knows 0 to ${vocabSize - 1}.`,
        );
    }
}
