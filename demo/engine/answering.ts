/**
 * The engine that answers questions: a second engine, in its own worker and on its own device. It holds the start weights twice and copies
 * the current ones on request. A question therefore uses no slot, counter or random number of the run, which stays the same bit for bit.
 */

import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { answer, type AnswerOptions } from '../../src/extensions/ask/index.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import type { DownloadProgress } from '../../src/model/checkpoint/download.ts';
import { parameterCount } from '../../src/model/params.ts';
import type { AgentLoopOutput } from '../../src/rollout/agent/loop.ts';
import { answerSizes, loraOf } from '../../src/workers/engineSpec.ts';
import { createRemoteEngine, type RemoteEngine } from '../../src/workers/remoteEngine.ts';
import { startEngineWorker } from './engineWorker.ts';
import { fetchModel, fetchTemplate } from './files.ts';
import type { Session } from './session.ts';

/** The weights with which a question is answered: 'before' = the start weights, 'now' = the current ones. */
export type Side = 'before' | 'now';

/** Maximum size in bytes of weights of which the page also stores the start version. With adapters, both sides share the base weights. */
const MAX_START_BYTES = 256 * 2 ** 20;

interface OpenOptions {
  /** A session that has loaded the model already; undefined = the model is fetched. */
  session: Session | undefined;
  hub: string | undefined;
  onDownload(progress: DownloadProgress): void;
}

/** Answers questions with the start weights and the current ones. */
export class Answering {
  readonly engine: RemoteEngine;
  /** Maximum number of tokens of a conversation, including the next answer. */
  readonly contextLength: number;
  /** True if the start model answers too. */
  readonly hasStart: boolean;
  /** Rejects when the worker dies. */
  readonly died: Promise<never>;
  readonly #worker: Worker;
  /** Source of the current weights; undefined = the current weights are the start weights. */
  #copied: { session: Session; step: number } | undefined;

  private constructor(
    worker: Worker,
    died: Promise<never>,
    opened: Pick<Answering, 'engine' | 'contextLength' | 'hasStart'>,
  ) {
    [this.#worker, this.died] = [worker, died];
    [this.engine, this.contextLength, this.hasStart] = [opened.engine, opened.contextLength, opened.hasStart];
  }

  static async open(config: TrainConfig, options: OpenOptions): Promise<Answering> {
    const { worker, died } = startEngineWorker();
    try {
      return new Answering(worker, died, await Promise.race([load(config, worker, options), died]));
    } catch (error) {
      worker.terminate();
      throw error;
    }
  }

  /** True if side 'now' has the weights of the session after `step`. */
  has(session: Session, step: number): boolean {
    const copied = this.#copied;
    return copied ? copied.session === session && copied.step === step : step === 0;
  }

  /** Uses these weights for answers of side 'now'. */
  async take(weights: TensorMap, session: Session, step: number): Promise<void> {
    const { model, rollout } = this.engine;
    await model.importWeights(weights);
    await rollout.resetCache(step);
    this.#copied = { session, step };
  }

  answer(
    side: Side,
    options: Omit<AnswerOptions, 'tokenizer' | 'rollout' | 'contextLength'>,
  ): Promise<AgentLoopOutput> {
    const { engine, contextLength } = this;
    const rollout = side === 'before' ? (engine.judge ?? engine.rollout) : engine.rollout;
    return Promise.race([answer({ ...options, tokenizer: engine.tokenizer, rollout, contextLength }), this.died]);
  }

  close(): void {
    this.#worker.terminate();
  }
}

async function load(config: TrainConfig, worker: Worker, { session, hub, onDownload }: OpenOptions) {
  const model =
    session && session.model.weights !== 'opened'
      ? (session.model as Awaited<ReturnType<typeof fetchModel>>)
      : await fetchModel(config.model.path, worker, hub, onDownload);
  const template = config.model.customChatTemplate;
  if (!session && template !== undefined)
    model.tokenizerConfigJson = { ...model.tokenizerConfigJson, chat_template: await fetchTemplate(template) };
  const hasStart = loraOf(config) !== undefined || 4 * parameterCount(model.config) <= MAX_START_BYTES;
  const sizes = answerSizes(config, model.config, { start: hasStart });
  const tokenizerFiles = session?.model ?? model;
  const engine = await createRemoteEngine(worker, {
    ...sizes,
    ...model,
    tokenizerConfigJson: tokenizerFiles.tokenizerConfigJson,
  });
  return { engine, contextLength: sizes.maxPositions, hasStart };
}
