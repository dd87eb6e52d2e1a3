/** One training run: a session, and the trainer on this thread. When the GPU or the worker is lost, it continues with new ones from its last state. */

import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { checkFirstPrompts } from '../../src/grpo/generate/templateCheck.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { LiveChange, Phase } from '../../src/grpo/types.ts';
import type { DownloadProgress } from '../../src/model/checkpoint/download.ts';
import { type LoggedRollout, loggedRollouts } from '../../src/runs/rollouts.ts';
import { isEngineLost } from '../../src/errors.ts';
import type { Keeper, Running } from './keeper.ts';
import { Session } from './session.ts';
import { StartEvaluation } from './startEvaluation.ts';
import { keepTokens } from './tokens.ts';

export interface EvaluationProgress {
  /** Problems. */
  done: number;
  total: number;
  /** Of the weights after this step; 0 = those that the run started from. */
  step: number;
  /** `stop` ends it, and not the session. */
  canSkip: boolean;
}

export interface RunEvents {
  /** Files that come from another server, then their way to the GPU. */
  onDownload(progress: DownloadProgress): void;
  onLoaded(session: Session): void;
  /** What failed with a session; another may be opened. */
  onClosed(session: Session): void;
  /** Before the first step by an engine; the run waits for it. */
  onTrainer?(trainer: GrpoTrainer, session: Session): Promise<void>;
  /** A setting that changed at the start of a step. */
  onChange?(change: LiveChange): void;
  /** The first step under rules that were replaced. */
  onReplace?(step: number): void;
  onPhase(phase: Phase, step: number): void;
  onSample(sample: Sample, step: number): void;
  onEvaluating(progress: EvaluationProgress): void;
  /** Further values of a step that has been told of, or those of the start weights, which have step 0. */
  onEvaluated(metrics: Metrics): void;
  /** Every try of the step; none after an evaluation. The next step waits for it. */
  onStep(metrics: Metrics, tries: LoggedRollout[]): void | Promise<void>;
  /** What is wrong with a step; the run continues. */
  onFault(reason: string): void;
  /** The trainer has come to rest after `pause`. */
  onPaused(): void;
  /** The engine is gone in the step in hand; the run will continue after the step `from`, or start over where that is -1. */
  onLost(error: unknown, from: number): void;
}

interface RunOptions {
  config: TrainConfig;
  /** Server of models that do not come with the page, when not the usual one. */
  hub: string | undefined;
  keeper: Keeper;
  /** One that is open already, with nothing trained on it; where it rejects, another is opened. */
  warm?: Promise<Session> | undefined;
  /** What the start weights can do is known from an earlier visit. */
  startIsKnown?: boolean;
  /** Steps that were trained before: `stop` evaluates nothing. */
  replays?: boolean;
  events: RunEvents;
}

/** New engines in a row that brought the run no step further. */
const MAX_LOSSES = 3;

/** The browser needs a while to start its GPU process again. */
const WAIT_MS = [0, 1000, 4000];

/** `stop` was asked for twice; the worker was ended in the middle of a step. */
class StoppedError extends Error {
  override name = 'StoppedError';
}

export class Run {
  readonly #options: RunOptions;
  readonly #ended: Promise<never>;
  #end: (error: Error) => void = () => {};
  /** The one in use: what is left of an earlier one is not listened to. */
  #session: Session | undefined;
  #trainer: GrpoTrainer | undefined;
  /** An engine has been there, so that another may be. */
  #loaded = false;
  #furthestStep = 0;
  #stopping = false;
  #startMetrics: Metrics | undefined;
  #evaluatedStep: number | undefined;
  /** Of the evaluation that the run does beside its trainer. */
  #evaluating: AbortController | undefined;
  /** Set while a pause is asked for; the trainer waits for it between steps. */
  #gate: { promise: Promise<void>; open: () => void } | undefined;

  constructor(options: RunOptions) {
    this.#options = options;
    this.#ended = new Promise((_, reject) => (this.#end = reject));
    this.#ended.catch(() => {});
  }

  get asked(): 'running' | 'pausing' | 'stopping' {
    if (this.#stopping) return 'stopping';
    return this.#gate ? 'pausing' : 'running';
  }

  /** Loads and trains until the last step or `stop`. The session stays; where this rejects with what went wrong, it is closed. */
  async train(): Promise<{ step: number; stopped: boolean }> {
    const { keeper, events } = this.#options;
    for (let losses = 0; ;) {
      const furthest = this.#furthestStep;
      try {
        return await this.#withSession();
      } catch (error) {
        losses = this.#furthestStep > furthest ? 1 : losses + 1;
        if (!this.#loaded || !isEngineLost(error) || losses > MAX_LOSSES) throw error;
        if (this.#stopping) return { step: Math.max(0, keeper.step), stopped: true };
        keeper.rewind();
        events.onLost(error, keeper.step);
        await Promise.race([new Promise((resolve) => setTimeout(resolve, WAIT_MS[losses - 1])), this.#ended]);
      }
    }
  }

  pause(): void {
    let open = () => {};
    const promise = new Promise<void>((resolve) => (open = resolve));
    this.#gate ??= { promise, open };
  }

  resume(): void {
    this.#gate?.open();
    this.#gate = undefined;
  }

  /** Ends the run after the step in hand and an evaluation; called again, that evaluation, or the step at once. */
  stop(): void {
    if (this.#stopping && this.#evaluating) return this.#evaluating.abort();
    if (!this.#trainer || this.#stopping) this.#end(new StoppedError('Stopped.'));
    this.#stopping = true;
    this.#trainer?.stop();
    this.resume();
  }

  async #withSession(): Promise<{ step: number; stopped: boolean }> {
    const { config, hub, events } = this.#options;
    const onDownload = (progress: DownloadProgress) => events.onDownload(progress);
    const { warm } = this.#options;
    this.#options.warm = undefined;
    const given = await Promise.race([warm?.catch(() => undefined), this.#ended]).catch((error: unknown) => {
      void warm?.then((unused) => unused.close());
      throw error;
    });
    const session = given ?? (await Session.open(config, { hub, onDownload }, this.#ended));
    this.#session = session;
    try {
      return await Promise.race([this.#train(session), session.lost, this.#ended]);
    } catch (error) {
      session.close();
      events.onClosed(session);
      throw error;
    } finally {
      [this.#session, this.#trainer] = [undefined, undefined];
    }
  }

  async #train(session: Session): Promise<{ step: number; stopped: boolean }> {
    const { config, keeper, events, startIsKnown, replays } = this.#options;
    const { engine, task, model } = session;
    const ifInUse = (tell: () => void) => {
      if (this.#session === session) tell();
    };
    const onEvaluating = (done: number, total: number, step: number) =>
      ifInUse(() => events.onEvaluating({ done, total, step, canSkip: this.#evaluating !== undefined }));
    const isDue = config.trainer.valBeforeTrain && !startIsKnown && !this.#startMetrics;
    this.#evaluating = undefined;
    const ending = new AbortController();
    const watch = {
      onProgress: (done: number, total: number) => onEvaluating(done, total, 0),
      signal: ending.signal,
    };
    const start = isDue ? await StartEvaluation.begin(session, config, watch) : undefined;
    const knowsStart = start !== undefined || this.#startMetrics !== undefined;
    const trainer: GrpoTrainer = new GrpoTrainer({
      config: knowsStart ? { ...config, trainer: { ...config.trainer, valBeforeTrain: false } } : config,
      task,
      engine,
      inspect: true,
      onPhase: (phase, step) => ifInUse(() => events.onPhase(phase, step)),
      onChange: (change) => ifInUse(() => events.onChange?.(change)),
      onReplace: (step) => ifInUse(() => events.onReplace?.(step)),
      onSample: (sample, step) => ifInUse(() => events.onSample(sample, step)),
      onEvaluating,
      onFault: ({ reason }) => ifInUse(() => events.onFault(reason)),
      onStep: async (metrics, samples, inputs) => {
        const tries = loggedRollouts(samples, metrics['training/global_step'], samples.length);
        if (inputs) keepTokens(tries, samples, inputs, engine);
        await this.#afterStep({ trainer, model }, metrics, tries);
        if (start && !this.#stopping && !this.#gate)
          await this.#evaluate(ending, () => this.#evaluateStart(start, trainer));
        if (!this.#gate) return;
        events.onPaused();
        await this.#gate.promise;
      },
    });
    if (keeper.checkpoint) await trainer.restore(keeper.checkpoint);
    await events.onTrainer?.(trainer, session);
    this.#trainer = trainer;
    this.#loaded = true;
    events.onLoaded(session);
    const notes = await checkFirstPrompts({ config, task, tokenizer: engine.tokenizer });
    if (notes.length > 0) events.onFault(notes.join(' '));
    if (this.#startMetrics && !keeper.checkpoint) this.#tellEvaluated(this.#startMetrics);
    const { state, stopped } = await trainer.fit();
    const { step } = state;
    if (step > 0) await keeper.keep({ trainer, model });
    await this.#evaluate(ending, async (signal) => {
      if (stopped && step > 0 && !replays && this.#evaluatedStep !== step) {
        const values = await trainer.validate({ greedy: true, signal });
        this.#tellEvaluated({ 'training/global_step': step, ...values });
      }
      if (start && step > 0) await this.#evaluateStart(start, trainer, Infinity); // what is left of it
    });
    return { step, stopped };
  }

  /** An evaluation that `stop` can end. */
  async #evaluate(ending: AbortController, evaluate: (signal: AbortSignal) => Promise<void>): Promise<void> {
    this.#evaluating = ending;
    try {
      await evaluate(ending.signal);
    } catch (error) {
      if (!ending.signal.aborted) throw error;
    } finally {
      this.#evaluating = undefined;
    }
  }

  async #evaluateStart(start: StartEvaluation, trainer: GrpoTrainer, count?: number): Promise<void> {
    if (this.#startMetrics) return;
    const { step } = trainer.state;
    this.#options.events.onPhase('validate', step);
    await start.next(step, count);
    this.#startMetrics = start.metrics;
    if (this.#startMetrics) this.#tellEvaluated(this.#startMetrics);
  }

  #tellEvaluated(metrics: Metrics): void {
    this.#options.events.onEvaluated(metrics);
    this.#options.keeper.amend(metrics);
  }

  /**
   * The trainer waits for what this returns. A step whose state is to be kept is told of once it is: a GPU that is lost on the way takes the
   * step with it.
   */
  async #afterStep(running: Running, metrics: Metrics, tries: LoggedRollout[]): Promise<void> {
    const { keeper, events } = this.#options;
    const step = metrics['training/global_step'];
    await keeper.afterStep(running, metrics, tries, this.#gate !== undefined || this.#stopping);
    this.#furthestStep = Math.max(this.#furthestStep, step);
    if ('timing_s/testing' in metrics) this.#evaluatedStep = step;
    await events.onStep(metrics, tries);
  }
}
