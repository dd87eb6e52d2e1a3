/**
 * Verifies samples of untrusted workers. Every sampled token is a function of its random key, its position and the logits, all of which the
 * controller can compute, because all tokens of a sample must be sampled by the weights that its prompt names. Everything else in a sample
 * follows from the tokens and the agent loop. There is therefore exactly one valid sample for each key.
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
  /** Number of tokens in the vocabulary. */
  vocabSize: number;
  /** Returns the group with this uid; undefined if it is not in flight. */
  groupOf(uid: string): PromptGroup | undefined;
  /**
   * Returns a model with the weights of this version; undefined if they were deleted. The verifier runs one batch at a time on it. Nothing
   * else may use the model meanwhile.
   */
  weightsOf(version: number): CheckingModel | undefined | Promise<CheckingModel | undefined>;
  /** Default: TOLERANCE. */
  tolerance?: Tolerance;
}

/** Accepts or rejects samples. Samples that arrive at the same time are computed in one batch. */
export class SampleVerifier {
  readonly #options: VerifierOptions;
  /** Indices of the accepted samples of groups in flight, by uid and version. */
  readonly #accepted = new Map<string, Map<number, Set<number>>>();
  /** Samples that wait for the next batch. */
  #waiting: { sample: DrawnSample; resolve: (bounds: Bounds) => void; reject: (error: unknown) => void }[] = [];
  #isRunning = false;

  /** Throws InputError for a config whose samples could not be verified. */
  constructor(options: VerifierOptions) {
    checkVerifiable(options.config);
    this.#options = options;
  }

  /**
   * Verifies that a sample is the one that it claims to be. Rejects with InputError if the run's own settings or code make that impossible.
   * @param again true if a sample with the same index may already have been accepted
   */
  async verify(sample: Sample, claim: SampleClaim, again = false): Promise<Verdict> {
    let check: DrawCheck | undefined;
    try {
      const { config, vocabSize } = this.#options;
      expectWellFormed(sample, claim, { config, vocabSize });
      const { problem } = this.#groupOf(claim);
      if (!again) this.#expectNew(claim);
      // Tokens are checked first, so that no tool, reward or other code of the task runs on tokens that the model did not sample.
      const drawn = drawnOf(sample, claim, config.seed);
      const result = checkDraws(drawn, await this.#bounds(drawn), this.#options.tolerance ?? TOLERANCE);
      check = result.check;
      if (result.rejection) throw result.rejection;
      const own = await this.#replayed(problem, sample, claim);
      this.#groupOf(claim); // the group may have ended meanwhile
      if (!again) this.#expectNew(claim);
      this.#acceptedOf(claim).add(claim.s);
      return { accepted: true, nearTokens: check.nearTokens, check, sample: own };
    } catch (error) {
      if (!(error instanceof Rejection)) throw error;
      return { accepted: false, reason: error.reason, detail: error.message, ...(check && { check }) };
    }
  }

  /** Forgets which samples of a group were accepted. Call it after the group has ended. */
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

  #expectNew(claim: SampleClaim): void {
    if (this.#acceptedOf(claim).has(claim.s))
      throw new Rejection('replayed sample', `sample ${claim.s} of "${claim.uid}" was accepted`);
  }

  #acceptedOf({ uid, version }: SampleClaim): Set<number> {
    const ofGroup = this.#accepted.get(uid) ?? new Map<number, Set<number>>();
    const accepted = ofGroup.get(version) ?? new Set();
    this.#accepted.set(uid, ofGroup.set(version, accepted));
    return accepted;
  }

  /** Replays a sample. If a user's code throws, the sample is rejected: in an honest worker the same code did not throw. */
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
    await nextTask(); // concurrent samples join the batch
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
  const { mask, weightVersions = new Uint32Array() } = trajectory;
  const other = weightVersions.findIndex((own, t) => mask[t] === 1 && own !== version);
  if (other >= 0)
    throw new Rejection(
      'forged version',
      `token ${other} is of version ${weightVersions[other]}, the prompt of ${version}`,
    );
  return { group: number, key: randomKey(seed, step, number, s), version, trajectory };
}
