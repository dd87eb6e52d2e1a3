/**
 * Converts the samples of a step to what the engine trains on (mini-batches, weights, micro-batches), and results back.
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
  /** Tokens with mask and log-probs. */
  trajectory: Trajectory;
  /** Problem's messages with the environment's first observation, if it returned one. */
  prompt?: Message[];
  /** Decoded messages after the prompt: assistant turns, and replies of tools and the loop. */
  messages: Message[];
  /** Result of the reward function. */
  reward: Reward;
  /** True if this is an additional row of the trajectory before it; see rows.ts. */
  fork?: true;
  /** Mean over its trained tokens, for reports; set once its group is complete. */
  advantage?: number;
  /** Rewards from tools, by tool, if there were any; see ScoredSample. */
  toolRewards?: Readonly<Record<string, number>>;
  /** Error if trainer.onError: skip left the sample without a reward. */
  fault?: UserCodeError;
  /** Generation, tool calls and reward with their times, if `trainer.profile` is on. */
  events?: SampleEvent[];
}

/** The part of a sample that is packed. */
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

/** Entries of a mini-batch in sample order, and their split into micro-batches. */
export interface MiniBatch {
  /** Indices of the mini-batch's samples in the step. */
  samples: number[];
  microBatches: MicroBatch[];
  /** First entry of each micro-batch. */
  offsets: number[];
  /** [E] sample (index into `samples`) and response position of every entry. */
  entrySample: Uint32Array;
  entryPosition: Uint32Array;
  /** [S + 1] first entry of each sample that has entries. */
  seqStart: Uint32Array;
}

/** Packs the given samples of a step. Samples of one group must be neighbours; those with the same prompt share it. */
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
    // An environment can start each sample with another observation, a client each conversation with other messages.
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

/** True if both have the same tokens. */
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

/** Values of every entry, from one array per sample. */
export function gatherEntries(batch: MiniBatch, perSample: readonly ArrayLike<number>[]): Float32Array<ArrayBuffer> {
  const { samples, entrySample, entryPosition } = batch;
  return Float32Array.from(entrySample, (s, e) => perSample[samples[s]][entryPosition[e]]);
}

/**
 * Inverse of `gatherEntries`: one array per sample of the batch, as long as `like`'s; 0 at positions without an entry.
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

/** Part of the inputs that belongs to micro-batch m. */
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

/** Part of the values that belongs to micro-batch m. */
export function sliceEntries({ offsets, entrySample }: MiniBatch, m: number, values: Float32Array): Float32Array {
  return values.slice(offsets[m], offsets[m + 1] ?? entrySample.length);
}

/** Arrays of the chosen samples at their step index; all other samples have an empty array. */
export function placeByStep<T extends ArrayLike<number>>(samples: number, chosen: number[], values: T[]) {
  const all: (T | Float64Array)[] = Array.from({ length: samples }, () => new Float64Array(0));
  chosen.forEach((s, i) => (all[s] = values[i]));
  return all;
}

/** Number of trained tokens of a sample. */
export const trainedCount = (mask: ArrayLike<number>): number => Array.from(mask).filter((m) => m !== 0).length;

/** Throws RangeError for a token id beyond the vocabulary, for which the device would read another row. */
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
