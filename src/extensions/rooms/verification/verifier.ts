/**
 * Verifies samples of untrusted workers. Sampling is keyed by counters, so each token is a function of its key,
 * its position and the logits, which the controller computes; everything else follows from the tokens by the agent loop.
 */

import { randomKey } from '../../../grpo/generate/samples.ts';
import { nextTask } from '../../../rollout/agent/yield.ts';
import { InputError, UserCodeError } from '../../../errors.ts';
import type { PromptGroup } from '../../../grpo/pipeline/types.ts';
import type { Sample } from '../../../grpo/update/batch.ts';
import { checkDraws, type CheckingModel, drawBounds, type DrawnSample } from './draws.ts';
import { expectWellFormed } from './form.ts';
import { type ReplayContext, replaySample } from './replay.ts';
import { checkVerifiable } from './rules.ts';
import { type DrawCheck, Rejection, type SampleClaim, TOLERANCE, type Tolerance, type Verdict } from './types.ts';

export interface VerifierOptions extends ReplayContext {
  /** Tokens that the model knows. */
  vocabSize: number;
  /** The group of that uid; undefined = it is not in flight. */
  groupOf(uid: string): PromptGroup | undefined;
  /**
   * A model that holds the weights of a version; undefined = they are no longer available. It is asked one batch at a time, in which
   * no other caller may use it.
   */
  weightsOf(version: number): CheckingModel | undefined | Promise<CheckingModel | undefined>;
  /** Absent = TOLERANCE. */
  tolerance?: Tolerance;
}

/** Accepts or rejects samples; those of one time are checked in one batch. */
export class SampleVerifier {
  readonly #options: VerifierOptions;
  /** Accepted samples of groups that are in flight, by uid. */
  readonly #accepted = new Map<string, Set<number>>();
  /** Samples that wait for the next batch. */
  #waiting: { sample: DrawnSample; resolve: (bounds: Bounds) => void; reject: (error: unknown) => void }[] = [];
  #isRunning = false;

  /** Throws InputError for a config whose samples cannot be verified. */
  constructor(options: VerifierOptions) {
    checkVerifiable(options.config);
    this.#options = options;
  }

  /** Checks whether a sample is what its worker says. Rejects with InputError if the run's own settings or code stand in the way. */
  async verify(sample: Sample, claim: SampleClaim): Promise<Verdict> {
    let check: DrawCheck | undefined;
    try {
      const { config, vocabSize } = this.#options;
      expectWellFormed(sample, claim, { config, vocabSize });
      const { problem } = this.#groupOf(claim);
      this.#expectNew(claim);
      const own = await this.#replayed(problem, sample, claim);
      const drawn = drawnOf(own, claim, config.seed);
      const result = checkDraws(drawn, await this.#bounds(drawn), this.#options.tolerance ?? TOLERANCE);
      check = result.check;
      if (result.rejection) throw result.rejection;
      this.#groupOf(claim); // may have ended meanwhile
      this.#expectNew(claim);
      this.#accepted.set(claim.uid, (this.#accepted.get(claim.uid) ?? new Set()).add(claim.s));
      return { accepted: true, nearTokens: check.nearTokens, check, sample: own };
    } catch (error) {
      if (!(error instanceof Rejection)) throw error;
      return { accepted: false, reason: error.reason, detail: error.message, ...(check && { check }) };
    }
  }

  /** Forgets which samples of a group were accepted; `groupOf` must not know the group any more. */
  forget(uid: string): void {
    this.#accepted.delete(uid);
  }

  #groupOf({ uid, number, step, s }: SampleClaim): PromptGroup {
    const group = this.#options.groupOf(uid);
    if (!group) throw new Rejection('malformed', `no group "${uid.slice(0, 80)}" is in flight`);
    const { n } = this.#options.config.rollout;
    if (group.number !== number || group.step !== step || s >= n)
      throw new Rejection('malformed', `group "${uid}" has no sample ${s} of problem ${number} and step ${step}`);
    return group;
  }

  #expectNew({ uid, s }: SampleClaim): void {
    if (this.#accepted.get(uid)?.has(s)) throw new Rejection('replayed sample', `sample ${s} of "${uid}" was accepted`);
  }

  /** What a user's code throws over a sample of a worker whose own has not thrown is the sample's fault. */
  async #replayed(problem: PromptGroup['problem'], sample: Sample, claim: SampleClaim): Promise<Sample> {
    try {
      return await replaySample(this.#options, problem, sample, claim);
    } catch (error) {
      if (error instanceof Rejection || (error instanceof InputError && !(error instanceof UserCodeError))) throw error;
      throw new Rejection('forged reward', error instanceof Error ? error.message : String(error));
    }
  }

  #bounds(sample: DrawnSample): Promise<Bounds> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ sample, resolve, reject });
      if (!this.#isRunning) void this.#run();
    });
  }

  async #run(): Promise<void> {
    const { config, weightsOf } = this.#options;
    const sizes = { temperature: config.rollout.temperature, maxTokenLen: config.actor.ppoMaxTokenLenPerGpu };
    this.#isRunning = true;
    await nextTask(); // others of the same time join
    while (this.#waiting.length > 0) {
      const jobs = this.#waiting.splice(0).sort((a, b) => a.sample.group - b.sample.group);
      try {
        const all = await drawBounds(jobs.map(({ sample }) => sample), weightsOf, sizes); // oxfmt-ignore
        jobs.forEach(({ resolve }, j) => resolve(all[j]));
      } catch (error) {
        for (const { reject } of jobs) reject(error);
      }
    }
    this.#isRunning = false;
  }
}

type Bounds = Awaited<ReturnType<typeof drawBounds>>[number];

function drawnOf({ trajectory }: Sample, { number, step, s, version }: SampleClaim, seed: number): DrawnSample {
  const { weightVersions = new Uint32Array(trajectory.mask.length).fill(version) } = trajectory;
  return { group: number, key: randomKey(seed, step, number, s), trajectory: { ...trajectory, weightVersions } };
}
