/** Learner: the verbs that a training loop is made of, over the engine and by the code of GrpoTrainer. */

import { InputError } from '../../errors.ts';
import type { ModelEngine } from '../../model/engine.ts';
import { finiteWeights } from '../../grpo/checkpoint.ts';
import { type ClientStepOptions, ClientTrainer, type TrainingClient, type TrajectoryOptions } from '../client/index.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { type Metrics, rolloutProbsDiff } from '../../grpo/metrics.ts';
import type { Checkpoint, TrainerEngine, TrainerState } from '../../grpo/types.ts';
import { gatherEntries, type MiniBatch, type Sample, scatterEntries } from '../../grpo/update/batch.ts';
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

/** Tells the requests of learners of one engine apart. */
let learners = 0;

/**
 * A policy under training, driven from outside. Calls take effect in the order in which they are made, whether or not the one
 * before is awaited: samples are drawn side by side, everything else runs alone, so a `sample` that is asked for during an
 * `optimStep` draws under the weights after it. What a call is given is read when it is made. Bad input rejects with InputError
 * and changes nothing; after any error the learner continues.
 */
export class Learner {
  /** The engine. No other caller may update its weights meanwhile. */
  readonly engine: TrainerEngine;
  /** Every default: sizes, sampling, loss, optimizer. */
  readonly config: TrainConfig;
  readonly #turns = new Turns();
  readonly #id = `learner-${++learners}`;
  /** Calls of `sample` that named neither step nor seed, and all calls. */
  #draws = 0;
  #requests = 0;
  #updates = 0;
  /** Calls whose gradients wait for `optimStep`. */
  #accumulated = 0;
  /** Made by the first client. */
  #clients: ClientTrainer | undefined;

  constructor({ engine, config }: LearnerOptions) {
    this.engine = engine;
    this.config = withLr(config, engine.model.config);
  }

  /** Optimizer steps so far, those of `step` aside: the version of the weights. */
  get updates(): number {
    return this.#updates;
  }

  /**
   * Draws `n` samples of each prompt: [prompts][n] rows, ready for `forwardBackward` once they have `advantages`. All prompts and
   * samples are decoded in one batch, which takes in the next sample as one ends; those of one prompt share its keys and values.
   * Throws InputError for a prompt that is empty, too long or no text of the model's.
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
    // Counted when its turn comes: a `loadState` before it sets the count.
    return this.#turns.beside(() => drawRows(this.engine, requests(settings.step ?? ++this.#draws)));
  }

  /**
   * Log-probs and entropies of the rows' trained tokens under the policy, or under the frozen reference. Throws InputError for
   * wrong rows, and for a reference that the engine was made without.
   */
  async logProbs(
    rows: readonly Row[],
    { temperature, reference = false }: { temperature?: number; reference?: boolean } = {},
  ): Promise<TokenValues> {
    const { config } = temperature === undefined ? this : sampleSettings(this.config, { temperature });
    if (temperature === 0)
      throw new InputError('logProbs: temperature is 0, at which one token has all the probability; take 1.');
    const { samples, masks } = packedRows('logProbs', rows, this.#limits);
    const model = reference ? this.#reference() : this.engine.model;
    const lengths = rows.map(({ tokens }) => tokens.length);
    const { logProbs, entropies } = await this.#turns.alone(() => tokenOutputs(config, model, samples, masks));
    return { logProbs: behindPrompts(logProbs, lengths), entropies: behindPrompts(entropies, lengths) };
  }

  /**
   * Adds the gradient of a loss over the rows to what earlier calls have added since the last `optimStep`. Each call is one
   * mini-batch: it is divided by its own rows or tokens, unless `globalBatchSize` or `batchNumTokens` say those of the whole
   * update. Rows whose advantages are all 0 are left out where they cannot move the policy (`skipZeroAdvantages`); their log-probs
   * are NaN.
   * @param loss a name: a method (grpo, dapo, gspo, cispo, ...) or a lossMode (vanilla, ...) with its published settings, or
   *   cross_entropy or importance_sampling, which are sums over tokens; a row of `defineLoss`; a function of all rows. Absent = the
   *   config's
   * Throws InputError for wrong rows, options or WGSL, UserCodeError for a function that fails: none of their gradient is left. An error of
   * the device drops what was accumulated.
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
   * Clips the accumulated gradient, moves the weights by it and zeroes it; the next samples are drawn under the new weights.
   * Throws InputError if nothing was accumulated.
   */
  async optimStep(options: OptimStepOptions = {}): Promise<OptimStepResult> {
    const config = optimSettings(this.config, options);
    return this.#turns.alone(async () => {
      if (this.#accumulated === 0)
        throw new InputError(
          'optimStep: there is no gradient; call forwardBackward before it, or await the one that failed.',
        );
      const lr = options.lr ?? scheduledLr(this.config, this.#updates);
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
   * The client of one episode of an agent, in the shape of OpenAI's API: `chat.completions.create`, then `trajectory.reward`. See
   * docs/guides/client.md. Throws InputError for settings of the config that do not go with clients.
   */
  client(options: TrajectoryOptions = {}): TrainingClient {
    return this.#trainer().client(options);
  }

  /**
   * One GRPO step, as GrpoTrainer's, on complete groups of clients' episodes, which it waits for. Rejects with InputError if the wait ends
   * without them; a step that fails gives its groups back.
   */
  async step(options: ClientStepOptions = {}): Promise<{ metrics: Metrics; samples: Sample[] }> {
    return this.#trainer().step(options);
  }

  /** Aborts every open episode of its clients, and ends steps that wait. The engine stays. */
  async close(): Promise<void> {
    await this.#clients?.close();
  }

  #trainer(): ClientTrainer {
    const { engine, config } = this;
    return (this.#clients ??= new ClientTrainer({ engine, config, alone: (work) => this.#turns.alone(work) }));
  }

  /** Drops the accumulated gradients, for a caller that skips an update. */
  async zeroGrad(): Promise<void> {
    return this.#turns.alone(() => this.#forget());
  }

  /**
   * All that is needed to resume as if nothing had happened: weights by Hugging Face name, optimizer, counters; what
   * `GrpoTrainer.restore` and the checkpoints of a run folder take. Throws InputError between forwardBackward and optimStep, since a
   * gradient is not part of it, and NotFiniteError for weights that are not finite.
   */
  async saveState(): Promise<Checkpoint> {
    return this.#turns.alone(async () => {
      if (this.#accumulated > 0)
        throw new InputError(
          'saveState: a gradient waits, which a state does not hold; call optimStep or zeroGrad before it.',
        );
      return this.#export();
    });
  }

  /**
   * Resumes from a state of `saveState`, of a GrpoTrainer or of a run's checkpoint; accumulated gradients are dropped. Its clients' episodes
   * that have their reward come back; open ones without a holder are dropped (`client/dropped_trajectories`). Throws InputError for
   * one of another model or optimizer, and then everything is as it was.
   */
  async loadState(state: Checkpoint): Promise<void> {
    return this.#turns.alone(async () => {
      const before = await this.#export();
      await this.#import(state).catch(async (error: unknown) => {
        await this.#import(before);
        throw error;
      });
    });
  }

  async #export(): Promise<Checkpoint> {
    const { model } = this.engine;
    const [step, { lr }] = [this.#updates, this.config.actor.optim];
    return {
      state: {
        step,
        problems: 0,
        updates: step,
        parts: { learner: { draws: this.#draws }, ...(await this.#stateOfClients()) },
      },
      weights: await finiteWeights(model, step, lr),
      optimizer: await model.exportOptimizer(),
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
      'logProbs: the engine has no reference; make it with `withReference: true` beside engineSizes(config).',
    );
  }
}

const drawsOf = (part: unknown): number | undefined =>
  typeof part === 'object' && part !== null && 'draws' in part && typeof part.draws === 'number'
    ? part.draws
    : undefined;

/** [samples] values of the entries; NaN at trained tokens of samples that were left out. */
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

/** Values of responses as those of rows, 0 on the prompts. */
const behindPrompts = (values: readonly ArrayLike<number>[], lengths: readonly number[]): Float32Array[] =>
  values.map((response, i) => {
    const row = new Float32Array(lengths[i]);
    row.set(response, row.length - response.length);
    return row;
  });
