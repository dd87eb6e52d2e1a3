/**
 * Replay of earlier groups that had a signal (TRL's GRPOWithReplayBufferTrainer): a group whose scores are all equal gives its
 * place in the step to a stored one. A stored sample keeps its tokens and the log-probs that its sampler gave them, so the
 * ratio of the loss is the policy now against the policy then, and clips or rollout correction see how old it is.
 */

import { InputError } from '../../errors.ts';
import { mulberry32 } from '../../model/random.ts';
import { findFault, SAMPLE_REQUIRED } from '../../rollout/tokenLog.ts';
import { grpo, std } from '../advantages/index.ts';
import type { StatefulPart } from '../parts.ts';
import type { Sample } from '../update/batch.ts';
import { decodeSample, encodeSample } from './sampleCodec.ts';
import type { GeneratedStep, InFlight, SampleSource, SourceOptions } from './samples.ts';

interface StoredGroup {
  /** Sum over its samples of |advantage| x std of the group's scores. */
  score: number;
  /** The step that sampled it. */
  step: number;
  samples: Sample[];
}

/** The best groups so far, at most `size` of them. */
export class ReplayBuffer implements StatefulPart {
  readonly #size: number;
  #groups: StoredGroup[] = [];
  /** The groups as the last step found them. */
  #before: { step: number; groups: StoredGroup[] } | undefined;

  constructor(size: number) {
    this.#size = size;
  }

  get length(): number {
    return this.#groups.length;
  }

  /** Keeps a group while there is room, or in place of the worst one if it is better. */
  add(group: StoredGroup): void {
    if (this.#groups.length >= this.#size) {
      const worst = this.#groups.reduce((low, { score }, i, all) => (score < all[low].score ? i : low), 0);
      if (group.score <= this.#groups[worst].score) return;
      this.#groups.splice(worst, 1);
    }
    this.#groups.push(group);
  }

  /** Draws groups in proportion to their scores; none twice, unless more are asked for than there are. */
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

  /** As a step begins; one that is begun again, since it failed, finds what it found before. */
  begin(step: number): void {
    if (this.#before?.step === step) this.#groups = [...this.#before.groups];
    else this.#before = { step, groups: [...this.#groups] };
  }

  state(): unknown {
    if (this.#groups.length === 0) return undefined;
    return this.#groups.map(({ samples, ...rest }) => ({ ...rest, samples: samples.map(encodeSample) }));
  }

  /** Throws InputError for what is no list of groups. */
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
    // Not the shape of a group; said below.
  }
  throw new InputError(
    "The checkpoint's replay buffer holds what is not a group of samples: it is damaged. Use another checkpoint.",
  );
}

/** The groups of another source, those without a signal replaced from a buffer. */
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
    // Like TRL, the step's own groups are stored first, so that they too may be drawn.
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

  /** The groups of a step in order, each with its score. */
  #scored(samples: Sample[], step: number): StoredGroup[] {
    const rewards = samples.map(({ reward }) => reward.score);
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
