/** One training run: files, a worker with the engine, the trainer on this thread. */

import type { TrainConfig } from '../src/grpo/config/types.ts';
import type { Metrics } from '../src/grpo/metrics.ts';
import type { Sample } from '../src/grpo/update/batch.ts';
import { GrpoTrainer } from '../src/grpo/trainer.ts';
import type { FitResult, Phase } from '../src/grpo/types.ts';
import type { DownloadProgress } from '../src/model/checkpoint/download.ts';
import { InputError } from '../src/errors.ts';
import { gsm8kToolTask } from '../src/tasks/gsm8k/task.ts';
import { withTools } from '../src/tasks/shippedTools.ts';
import type { Task } from '../src/tasks/task.ts';
import { engineSizes } from '../src/workers/engineSpec.ts';
import type { EngineDescription } from '../src/workers/engineApi.ts';
import { createRemoteEngine } from '../src/workers/remoteEngine.ts';
import { fetchModel, fetchTemplate } from './files.ts';

interface RunEvents {
  /** Files that come from another server, then their way to the GPU. */
  onDownload(progress: DownloadProgress): void;
  onLoaded(engine: EngineDescription): void;
  onPhase(phase: Phase, step: number): void;
  onSample(sample: Sample, step: number): void;
  onStep(metrics: Metrics, samples: Sample[]): void;
  /** The trainer has come to rest after `pause`. */
  onPaused(): void;
}

/** `stop` was asked for twice; the worker was ended in the middle of a step. */
export class StoppedError extends Error {
  override name = 'StoppedError';
}

export class Run {
  readonly #config: TrainConfig;
  readonly #events: RunEvents;
  readonly #worker: Worker;
  readonly #ended: Promise<never>;
  #end: (error: Error) => void = () => {};
  #trainer: GrpoTrainer | undefined;
  #stopping = false;
  /** Set while a pause is asked for; the trainer waits for it between steps. */
  #gate: { promise: Promise<void>; open: () => void } | undefined;

  constructor(config: TrainConfig, events: RunEvents) {
    this.#config = config;
    this.#events = events;
    this.#worker = new Worker(new URL('./engine.worker.ts', import.meta.url), { type: 'module' });
    this.#ended = new Promise((_, reject) => (this.#end = reject));
  }

  /** Loads and trains until the last step or `stop`. Rejects with what went wrong; the worker is gone in any case. */
  async train(): Promise<FitResult> {
    try {
      return await Promise.race([this.#train(), this.#ended]);
    } finally {
      this.#worker.terminate();
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

  /** Ends the run after the step in hand; called again, at once. */
  stop(): void {
    if (!this.#trainer || this.#stopping) this.#end(new StoppedError('Stopped.'));
    this.#stopping = true;
    this.#trainer?.stop();
    this.resume();
  }

  async #train(): Promise<FitResult> {
    const config = this.#config;
    const task = openTask(config);
    const {
      config: modelConfig,
      weights,
      tokenizerJson,
      tokenizerConfigJson: shippedTokenizerConfig,
    } = await fetchModel(config.model.path, this.#worker, (progress) => this.#events.onDownload(progress));
    const { customChatTemplate } = config.model;
    const tokenizerConfigJson =
      customChatTemplate === undefined
        ? shippedTokenizerConfig
        : { ...shippedTokenizerConfig, chat_template: await fetchTemplate(customChatTemplate) };
    const spec = { ...engineSizes(config), config: modelConfig, weights, tokenizerJson, tokenizerConfigJson };
    const engine = await createRemoteEngine(this.#worker, spec);
    this.#events.onLoaded(engine.description);
    const { onPhase, onSample } = this.#events;
    this.#trainer = new GrpoTrainer({
      config,
      task,
      engine,
      onPhase,
      onSample,
      onStep: (metrics, samples) => this.#afterStep(metrics, samples),
    });
    const result = await this.#trainer.fit();
    await engine.destroy();
    return result;
  }

  /** The trainer waits for what this returns, which is all that a pause needs. */
  async #afterStep(metrics: Metrics, samples: Sample[]): Promise<void> {
    this.#events.onStep(metrics, samples);
    if (!this.#gate) return;
    this.#events.onPaused();
    await this.#gate.promise;
  }
}

/** The page has the tasks that need no files of the user's. Throws InputError. */
function openTask({ task }: TrainConfig): Task {
  if (task.name === 'gsm8k' && task.path === undefined)
    return withTools(gsm8kToolTask({ shaping: task.options }), task.tools);
  throw new InputError(
    `task.name is "${task.name}"${task.path ? ` with the file ${task.path}` : ''}; the page knows the generated gsm8k task.`,
  );
}
