/**
 * Replay of earlier groups that had a signal (TRL's GRPOWithReplayBufferTrainer): a stored group replaces each group
 * whose rewards without KL are all equal. A stored sample keeps its tokens and the log-probs of the policy that
 * sampled it. So the loss ratio compares the current policy with that older one, and clipping or rollout correction
 * accounts for the sample's age.
 */

import { InputError } from '../../errors.ts';
import { mulberry32 } from '../../model/random.ts';
import { findFault, SAMPLE_REQUIRED } from '../../rollout/tokenLog.ts';
import { grpo, std } from '../../grpo/advantages/index.ts';
import type { StatefulPart } from '../../grpo/parts.ts';
import type { Sample } from '../../grpo/update/batch.ts';
import { rewardsWithoutKl } from '../../grpo/update/stepTokens.ts';
import { decodeSample, encodeSample } from './sampleCodec.ts';
import type { GeneratedStep, InFlight, SampleSource, SourceOptions } from '../../grpo/generate/samples.ts';

interface StoredGroup {
  /** Score of the group: the sum of its samples' |advantage|, times the std of the group's scores. */
  score: number;
  /** Step that sampled the group. */
  step: number;
  samples: Sample[];
}

/** Stores the groups with the highest scores so far, at most `size`. */
export class ReplayBuffer implements StatefulPart {
  readonly #size: number;
  #groups: StoredGroup[] = [];
  /** Stored groups as they were at the start of the last step. */
  #before: { step: number; groups: StoredGroup[] } | undefined;

  constructor(size: number) {
    this.#size = size;
  }

  get length(): number {
    return this.#groups.length;
  }

  /**
   * Stores a group if there is space, or replaces the stored group with the lowest score if this one has a higher
   * score.
   */
  add(group: StoredGroup): void {
    if (this.#groups.length >= this.#size) {
      const worst = this.#groups.reduce((low, { score }, i, all) => (score < all[low].score ? i : low), 0);
      if (group.score <= this.#groups[worst].score) return;
      this.#groups.splice(worst, 1);
    }
    this.#groups.push(group);
  }

  /** Samples groups in proportion to their scores, without repeats unless more are requested than stored. */
  draw(count: number, uniform: () => number): StoredGroup[] {
    const again = count > this.#groups.length;
    const left = [...this.#groups];
    return Array.from({ length: left.length > 0 ? count : 0 }, () => {
      let at = uniform() * left.reduce((total, { score }) => total + score, 0);
      const found = left.findIndex(({ score }) => (at -= score) < 0);
      const index = found < 0 ? left.length - 1 : found;
      return again ? left[index] : left.splice(index, 1)[0];
    });
  }

  /**
   * Called at the start of a step. If a failed step is run again, restores the groups from before the failed attempt.
   */
  begin(step: number): void {
    if (this.#before?.step === step) this.#groups = [...this.#before.groups];
    else this.#before = { step, groups: [...this.#groups] };
  }

  state(): unknown {
    if (this.#groups.length === 0) return undefined;
    return this.#groups.map(({ samples, ...rest }) => ({ ...rest, samples: samples.map(encodeSample) }));
  }

  /** Throws InputError if the state is not a list of groups. */
  restore(state: unknown): void {
    const groups = decodeGroups(state);
    this.#groups = [];
    this.#before = undefined;
    for (const group of groups) this.add(group);
  }
}

type EncodedGroup = Omit<StoredGroup, 'samples'> & { samples: ReturnType<typeof encodeSample>[] };

function decodeGroups(state: unknown): StoredGroup[] {
  try {
    const groups = (state as EncodedGroup[]).map(({ samples, ...rest }) => ({
      ...rest,
      samples: samples.map(decodeSample),
    }));
    const isWhole = ({ score, step, samples }: StoredGroup) =>
      Number.isFinite(score) &&
      Number.isSafeInteger(step) &&
      samples.every(({ trajectory }) => !findFault(trajectory, SAMPLE_REQUIRED));
    if (groups.every(isWhole)) return groups;
  } catch {
    // A value of the wrong shape can throw while it is decoded; it is reported by the InputError after this block.
  }
  throw new InputError(
    "The checkpoint's replay buffer contains a value that is not a group of samples. The checkpoint is damaged: use another one.",
  );
}

/**
 * A source of samples. In the groups of another source, it replaces each group without a signal by one from the replay
 * buffer.
 */
export class ReplayedGroups implements SampleSource {
  readonly #source: SampleSource;
  readonly #config: SourceOptions['config'];
  readonly #buffer: ReplayBuffer;

  constructor(source: SampleSource, config: SourceOptions['config'], buffer: ReplayBuffer) {
    this.#source = source;
    this.#config = config;
    this.#buffer = buffer;
  }

  async generate(step: number): Promise<GeneratedStep> {
    this.#buffer.begin(step);
    const generated = await this.#source.generate(step);
    const drawn = generated.samples;
    const groups = this.#scored(drawn, step);
    // The step's own groups are stored first, as in TRL, so that the buffer can return them too.
    for (const group of groups) if (group.score > 0) this.#buffer.add(group);
    const uniform = mulberry32(this.#config.seed * 104_729 + step);
    const replays = this.#buffer.draw(groups.filter(({ score }) => score === 0).length, uniform);
    let [replayed, age] = [0, 0];
    const samples = groups.flatMap(({ score, samples: own }) => {
      if (score > 0 || replays.length === 0) return own;
      const stored = replays[replayed++];
      age += step - stored.step;
      return stored.samples.map((sample) => ({ ...sample, group: own[0].group }));
    });
    const metrics = {
      ...generated.metrics,
      'training/replayed_groups': replayed,
      'training/replay_buffer_size': this.#buffer.length,
      ...(replayed > 0 && { 'training/replay_age': age / replayed }),
    };
    return { ...generated, samples, drawn, metrics };
  }

  /** Groups of a step in order, each with its score. */
  #scored(samples: Sample[], step: number): StoredGroup[] {
    const rewards = rewardsWithoutKl(this.#config, samples);
    const ids = samples.map(({ group }) => group);
    const advantages = grpo(rewards, ids, this.#config.algorithm.scaleRewards);
    return [...new Set(ids)].map((id) => {
      const members = ids.flatMap((group, i) => (group === id ? [i] : []));
      const spread = std(members.map((i) => rewards[i]).filter((reward) => !Number.isNaN(reward)));
      const score = members.reduce((total, i) => total + Math.abs(advantages[i]) * spread, 0);
      return { score, step, samples: members.map((i) => samples[i]) };
    });
  }

  get inFlight(): InFlight | undefined {
    return this.#source.inFlight;
  }
}
