/** The Learner: the operations of which a user's own training loop consists. They run the same code as GrpoTrainer. */

import { InputError } from '../../errors.ts';
import type { ModelEngine, TensorMap } from '../../model/engine.ts';
import { finiteWeights } from '../../grpo/checkpoint.ts';
import { type ClientStepOptions, ClientTrainer, type TrainingClient, type TrajectoryOptions } from '../client/index.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { withLowered } from '../../grpo/generate/trainingSet.ts';
import { type Metrics, rolloutProbsDiff } from '../../grpo/metrics.ts';
import type { Checkpoint, TrainerEngine, TrainerState } from '../../grpo/types.ts';
import { gatherEntries, type MiniBatch, type Sample, scatterEntries } from '../../grpo/update/batch.ts';
import { batchTable } from '../../grpo/config/rules.ts';
import { optimizerOptions, scheduledLr, withLr } from '../../grpo/update/learningRate.ts';
import { lossValue, type PolicyData, PolicyGradient, tokenOutputs } from '../../grpo/update/policyGradient.ts';
import { packedRows, policyData, type RowLimits } from './rows.ts';
import { drawRows, sampleRequests } from './sampling.ts';
import { type Loss, type LossSettings, lossSettings, optimSettings, sampleSettings } from './settings.ts';
import { Turns } from './turns.ts';
import type {
  ForwardBackwardResult,
  LearnerOptions,
  LossOptions,
  OptimStepOptions,
  OptimStepResult,
  Prompt,
  Row,
  SampledRow,
  SampleOptions,
  TokenValues,
  TrainRow,
} from './types.ts';

/** Number of learners created so far. It distinguishes the requests of several learners on one engine. */
let learners = 0;

/**
 * A policy that a user's own loop trains. Calls take effect in the order in which they are made, even if the caller does not await them:
 * `sample` calls run concurrently, every other call waits for all earlier ones. A `sample` requested during an `optimStep` therefore uses
 * the updated weights. Arguments are read when the call is made. Invalid input rejects with InputError and changes nothing. The learner
 * stays usable after any error.
 */
export class Learner {
  /** The engine. While the learner is in use, nothing else may update the engine's weights. */
  readonly engine: TrainerEngine;
  /** Config with the sizes and the default of every option of sampling, loss and optimizer. */
  readonly config: TrainConfig;
  readonly #turns = new Turns();
  readonly #id = `learner-${++learners}`;
  /** Number of `sample` calls that set neither `step` nor `seed` (#draws), and of all `sample` calls (#requests). */
  #draws = 0;
  #requests = 0;
  #updates = 0;
  /** Number of `forwardBackward` calls since the last `optimStep`. */
  #accumulated = 0;
  /** Trainer that collects the episodes of clients; created with the first client. */
  #clients: ClientTrainer | undefined;

  constructor({ engine, config }: LearnerOptions) {
    this.engine = engine;
    this.config = withLr(withLowered(config, engine.lowered?.values), engine.model.config);
  }

  /** Number of `optimStep` calls so far, which is also the weight version. Updates by `step` are not counted. */
  get updates(): number {
    return this.#updates;
  }

  /**
   * Samples `n` completions of each prompt. Returns rows in an array [prompts][n]; add `advantages` to a row to pass it to
   * `forwardBackward`. All completions are decoded in one batch, and when one ends, a waiting one takes its slot. Completions of one prompt
   * share the prompt's KV cache. Throws InputError if a prompt is empty or too long, or has text that the tokenizer cannot encode.
   */
  async sample(
    prompts: readonly Prompt[],
    n = this.config.rollout.n,
    options: SampleOptions = {},
  ): Promise<SampledRow[][]> {
    const settings = sampleSettings(this.config, options);
    const requestId = `${this.#id}.${this.#requests++}`;
    const given = { tools: options.tools ?? [], requestId };
    const requests = sampleRequests(this.engine, prompts, n, settings, given);
    // `#draws` is increased only when this call's turn comes, because an earlier `loadState` that is still running sets the counter.
    return this.#turns.beside(() => drawRows(this.engine, requests(settings.step ?? ++this.#draws)));
  }

  /**
   * Returns log-probs and entropies at the rows' tokens with mask 1, under the policy or under the frozen reference. Throws InputError for
   * invalid rows, or if the engine was created without a reference.
   */
  async logProbs(
    rows: readonly Row[],
    { temperature, reference = false }: { temperature?: number; reference?: boolean } = {},
  ): Promise<TokenValues> {
    const { config } = temperature === undefined ? this : sampleSettings(this.config, { temperature });
    if (temperature === 0)
      throw new InputError('logProbs: temperature is 0, at which one token has all the probability. Set it to 1.');
    const { samples, masks } = packedRows('logProbs', rows, this.#limits);
    const model = reference ? this.#reference() : this.engine.model;
    const lengths = rows.map(({ tokens }) => tokens.length);
    const { logProbs, entropies } = await this.#turns.alone(() => tokenOutputs(config, model, samples, masks));
    return { logProbs: behindPrompts(logProbs, lengths), entropies: behindPrompts(entropies, lengths) };
  }

  /**
   * Computes a loss over the rows and adds its gradient to the gradient accumulated since the last `optimStep`. Each call is one
   * mini-batch. Its loss is divided by the rows or tokens of this call, unless `globalBatchSize` or `batchNumTokens` give those of the
   * complete update. With `skipZeroAdvantages`, rows whose advantages are all 0 are skipped if they cannot change the policy; their
   * log-probs are NaN in the result.
   *
   * Throws InputError for invalid rows, options or WGSL, and UserCodeError if a function given as loss fails; the accumulated gradient is
   * then unchanged. A device error drops the accumulated gradient.
   *
   * @param loss a name, the result of `defineLoss`, or a function of all rows. Names are a method (grpo, dapo, gspo, cispo, ...) or a
   * lossMode (vanilla, ...), each with its published settings, or cross_entropy or importance_sampling, which are sums over tokens.
   * Default: the loss of the config
   */
  async forwardBackward(
    rows: readonly TrainRow[],
    loss?: Loss,
    options: LossOptions = {},
  ): Promise<ForwardBackwardResult> {
    const settings = lossSettings(this.config, loss, options, Array.isArray(rows) ? Math.max(1, rows.length) : 1);
    const data = policyData(rows, this.#limits, settings);
    const lengths = rows.map(({ tokens }) => tokens.length);
    const sampled = rows.every(({ logProbs }) => logProbs !== undefined);
    return this.#turns.alone(() => this.#forwardBackward(settings, data, { lengths, sampled }));
  }

  async #forwardBackward(
    settings: LossSettings,
    data: PolicyData,
    { lengths, sampled }: { lengths: number[]; sampled: boolean },
  ): Promise<ForwardBackwardResult> {
    const gradient = new PolicyGradient(settings.config, this.engine.model, settings.loss);
    const { masks } = data.tokens;
    const prepared = gradient.prepare(
      data,
      masks.flatMap((mask, s) => (Array.from(mask).includes(1) ? [s] : [])),
    );
    const done = await gradient.accumulate(data, prepared).catch(async (error: unknown) => {
      if (!(error instanceof InputError)) await this.#forget();
      throw error;
    });
    this.#accumulated++;
    const { batch, outputs } = done;
    const metrics = gradient.metrics(done);
    const inRows = (values: Float32Array) => behindPrompts(inSamples(batch, values, masks), lengths);
    return {
      loss: lossValue(done, metrics),
      metrics: {
        ...metrics,
        ...(sampled && rolloutProbsDiff(gatherEntries(batch, data.tokens.oldLogProbs), outputs.logProbs)),
      },
      logProbs: inRows(outputs.logProbs),
      entropies: inRows(outputs.entropy),
    };
  }

  /**
   * Clips the accumulated gradient, applies it to the weights and resets it to zero. Later samples use the new weights. Throws InputError
   * if no gradient was accumulated.
   */
  async optimStep(options: OptimStepOptions = {}): Promise<OptimStepResult> {
    const config = optimSettings(this.config, options);
    return this.#turns.alone(async () => {
      if (this.#accumulated === 0)
        throw new InputError(
          'optimStep: there is no gradient. Call forwardBackward before it, or await the one that failed.',
        );
      const lr = options.lr ?? scheduledLr(this.config, Math.floor(this.#updates / batchTable(this.config).updates));
      const { model, rollout } = this.engine;
      const { gradNorm, skipped } = await model
        .optimizerStep(optimizerOptions(config, lr))
        .catch(async (error: unknown) => {
          await this.#forget();
          throw error;
        });
      this.#accumulated = 0;
      this.#updates++;
      await rollout.resetCache(this.#updates);
      return { gradNorm, lr, skipped, updates: this.#updates };
    });
  }

  /**
   * Opens an episode of an agent and returns its client, which has OpenAI's API: call `chat.completions.create`, then `trajectory.reward`.
   * See docs/guides/client.md. Throws InputError if the config has settings that do not work with clients.
   */
  client(options: TrajectoryOptions = {}): TrainingClient {
    return this.#trainer().client(options);
  }

  /**
   * Waits for complete groups of client episodes and runs one GRPO step on them, as GrpoTrainer does. Rejects with InputError if the wait
   * ends before enough groups are complete. If a step fails, its groups can be trained on again.
   */
  async step(options: ClientStepOptions = {}): Promise<{ metrics: Metrics; samples: Sample[] }> {
    return this.#trainer().step(options);
  }

  /** Aborts all open episodes of the learner's clients, and ends steps that wait for groups. The engine stays open. */
  async close(): Promise<void> {
    await this.#clients?.close();
  }

  #trainer(): ClientTrainer {
    const { engine, config } = this;
    return (this.#clients ??= new ClientTrainer({ engine, config, alone: (work) => this.#turns.alone(work) }));
  }

  /** Drops the accumulated gradient, to skip an update. */
  async zeroGrad(): Promise<void> {
    return this.#turns.alone(() => this.#forget());
  }

  /**
   * Returns everything that is needed to resume exactly: weights by Hugging Face name, optimizer state and counters. The format is also
   * that of `GrpoTrainer.restore` and of the checkpoints in a run folder. Throws InputError if a gradient is accumulated, because it is not
   * part of the state. Throws NotFiniteError if a weight is not finite.
   */
  async saveState(): Promise<Checkpoint> {
    return this.#turns.alone(async () => {
      if (this.#accumulated > 0)
        throw new InputError(
          'saveState: a gradient is accumulated, which a state cannot contain. Call optimStep or zeroGrad first.',
        );
      return this.#export(await finiteWeights(this.engine.model, this.#updates, this.config.actor.optim.lr));
    });
  }

  /**
   * Resumes from a state that `saveState` or a GrpoTrainer returned, or that a run stored as a checkpoint. Drops the accumulated gradient.
   * Client episodes with a reward are restored; open ones whose client no longer exists are dropped (`client/dropped_trajectories`). For a
   * state of another model or optimizer, throws InputError and changes nothing.
   */
  async loadState(state: Checkpoint): Promise<void> {
    return this.#turns.alone(async () => {
      const before = await this.#export(await this.engine.model.exportWeights());
      await this.#import(state).catch(async (error: unknown) => {
        await this.#import(before);
        throw error;
      });
    });
  }

  async #export(weights: TensorMap): Promise<Checkpoint> {
    return {
      state: {
        step: this.#updates,
        problems: 0,
        updates: this.#updates,
        parts: { learner: { draws: this.#draws }, ...(await this.#stateOfClients()) },
      },
      weights,
      optimizer: await this.engine.model.exportOptimizer(),
    };
  }

  async #stateOfClients(): Promise<{ clients?: TrainerState }> {
    if (!this.#clients) return {};
    const { groups, trainer } = this.#clients;
    const { parts, ...state } = trainer.state;
    return { clients: { ...state, parts: { ...parts, inFlight: await groups.save() } } };
  }

  async #import({ state, weights, optimizer, reference }: Checkpoint): Promise<void> {
    const { model, rollout, reference: frozen } = this.engine;
    const clients = state.parts?.['clients'] as TrainerState | undefined;
    await this.#forget();
    if (clients) {
      await this.#trainer().trainer.restore({ state: clients, weights, optimizer, ...(reference && { reference }) });
    } else {
      await model.importWeights(weights);
      await model.importOptimizer(optimizer);
      if (reference) await frozen?.importWeights(reference);
      await rollout.resetCache(state.updates);
    }
    this.#updates = state.updates;
    this.#draws = drawsOf(state.parts?.['learner']) ?? state.step;
  }

  async #forget(): Promise<void> {
    this.#accumulated = 0;
    await this.engine.model.zeroGrad();
  }

  get #limits(): RowLimits {
    const { maxPromptLength, maxResponseLength } = this.config.data;
    return { vocabSize: this.engine.model.config.vocabSize, maxPositions: maxPromptLength + maxResponseLength };
  }

  #reference(): ModelEngine {
    const { reference } = this.engine;
    if (reference) return reference;
    throw new InputError(
      'logProbs: the engine has no reference. Create it with `withReference: true` in addition to engineSizes(config).',
    );
  }
}

const drawsOf = (part: unknown): number | undefined =>
  typeof part === 'object' && part !== null && 'draws' in part && typeof part.draws === 'number'
    ? part.draws
    : undefined;

/**
 * Distributes the values of a batch to its samples: one array per sample, 0 at tokens with mask 0. Samples that the loss skipped have NaN
 * at their trained tokens.
 */
function inSamples(batch: MiniBatch, values: Float32Array, masks: ArrayLike<number>[]): ArrayLike<number>[] {
  const inside = scatterEntries(
    batch,
    values,
    batch.samples.map((s) => masks[s]),
  );
  const all: ArrayLike<number>[] = masks.map((mask) => Float32Array.from(mask, (m) => (m === 0 ? 0 : NaN)));
  batch.samples.forEach((s, i) => (all[s] = inside[i]));
  return all;
}

/** Extends each array of response values to a full row: zeros for the prompt, then the values. */
const behindPrompts = (values: readonly ArrayLike<number>[], lengths: readonly number[]): Float32Array[] =>
  values.map((response, i) => {
    const row = new Float32Array(lengths[i]);
    row.set(response, row.length - response.length);
    return row;
  });
