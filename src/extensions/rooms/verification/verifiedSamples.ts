/**
 * Verifies the samples of untrusted workers: a SampleVerifier, and a separate model into which published weights are loaded by version. The
 * sample to train on is the one that the controller computed, not the one that the worker sent.
 */

import type { TrainConfig } from '../../../grpo/config/types.ts';
import type { Metrics } from '../../../grpo/metrics.ts';
import { type PromptGroup, uidOfGroup } from '../../../grpo/pipeline/types.ts';
import { recordOf, sampleOf, waitsOf } from '../../pipelines/index.ts';
import { type ExperienceRecord, uidOf } from '../../../grpo/pipeline/record.ts';
import type { Sample } from '../../../grpo/update/batch.ts';
import type { CheckingModel } from './draws.ts';
import { SampleVerifier } from './verifier.ts';
import { readSafetensors } from '../../../model/checkpoint/safetensors.ts';
import type { ModelEngine } from '../../../model/engine.ts';
import type { ChatTokenizer } from '../../../model/tokenizer/chat.ts';
import { withRewardWeights } from '../../../tasks/rewards/combine.ts';
import type { Task } from '../../../tasks/task.ts';
import type { CheckSample } from '../natsRollouter.ts';

export interface VerifiedSamplesOptions {
  config: TrainConfig;
  /** Task without reward.weights, which are applied to it. */
  task: Task;
  tokenizer: ChatTokenizer;
  /** Model that is used only for the verification. */
  model: ModelEngine;
  /** Number of weight versions to keep in memory. */
  keep: number;
  /** Returns the file of weights that were dropped from memory; undefined if the file was deleted. */
  fileOf(version: number): Promise<Uint8Array | undefined>;
}

/** Verifies samples of untrusted workers against the published weights. */
export class VerifiedSamples {
  readonly #options: VerifiedSamplesOptions;
  readonly #verifier: SampleVerifier;
  /** Groups of which at least one sample was received, by uid. */
  readonly #groups = new Map<string, PromptGroup>();
  readonly #files = new Map<number, Uint8Array>();
  /** Version of the weights that are loaded into the model. */
  #loaded: number | undefined;
  #tokens = 0;
  #nearTokens = 0;
  #looseTokens = 0;

  /** Throws InputError for a config whose samples could not be verified. */
  constructor(options: VerifiedSamplesOptions) {
    const { config, tokenizer, model } = options;
    const task = withRewardWeights(options.task, config.reward.weights);
    this.#options = options;
    this.#verifier = new SampleVerifier({
      ...{ config, task, tokenizer, vocabSize: model.config.vocabSize },
      groupOf: (uid) => this.#groups.get(uid),
      weightsOf: (version) => this.#weightsOf(version),
    });
  }

  /** Adds the weights that were just published. */
  publish(version: number, file: Uint8Array): void {
    this.#keep(version, file);
    if (this.#loaded === version) this.#loaded = undefined;
  }

  readonly check: CheckSample = async (record, worker, group, version, again) => {
    const uid = uidOfGroup(group);
    const sample = readableSample(record, group);
    if (!sample) return 'malformed';
    this.#groups.set(uid, group);
    const s = Number(record.key.slice(uidOf(record.key).length + 1));
    const { number, step } = group;
    const verdict = await this.#verifier.verify(sample, { uid, number, step, s, version }, again);
    if (!verdict.accepted) return verdict.reason;
    this.#tokens += verdict.check.tokens;
    this.#nearTokens += verdict.nearTokens;
    this.#looseTokens += verdict.check.looseTokens;
    const checked = recordOf(verdict.sample, { uid, sample: s, worker }, { near: verdict.nearTokens });
    return { ...checked, columns: { ...checked.columns, ...waitsOf(record) } };
  };

  /** Forgets a group of which no more samples are needed. */
  ended(uid: string): void {
    this.#groups.delete(uid);
    this.#verifier.forget(uid);
  }

  metrics(): Metrics {
    if (this.#tokens === 0) return {};
    const [near, loose] = [this.#nearTokens / this.#tokens, this.#looseTokens / this.#tokens];
    return { 'room/near_tokens_share': near, 'room/loose_tokens_share': loose };
  }

  async #fileOf(version: number): Promise<Uint8Array | undefined> {
    const kept = this.#files.get(version);
    if (kept) return kept;
    const file = await this.#options.fileOf(version);
    if (file) this.#keep(version, file);
    return file;
  }

  #keep(version: number, file: Uint8Array): void {
    this.#files.set(version, file);
    for (const old of [...this.#files.keys()].sort((a, b) => b - a).slice(this.#options.keep)) this.#files.delete(old);
  }

  async #weightsOf(version: number): Promise<CheckingModel | undefined> {
    const { model } = this.#options;
    const asked = { drawBounds: model.drawBounds!.bind(model) };
    if (this.#loaded === version) return asked;
    const file = await this.#fileOf(version);
    if (!file) return undefined;
    this.#loaded = undefined;
    await model.importWeights(readSafetensors(file, `weights of version ${version}`));
    this.#loaded = version;
    return asked;
  }
}

/** The check for trusted workers: every sample that can be parsed is trained on unchanged. */
export const readableAlone: CheckSample = (record, _, group) =>
  readableSample(record, group) ? undefined : 'malformed';

function readableSample(record: ExperienceRecord, { problem, number }: PromptGroup): Sample | undefined {
  try {
    return sampleOf(record, { problem, group: number });
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}
