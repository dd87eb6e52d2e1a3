/** Runs one training step with a fault in a user's code on a real engine, and the next step, which must not be affected. */

import { describe } from '../../src/errors.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { GrpoTrainerOptions } from '../../src/grpo/trainerOptions.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { installDawn } from '../../src/cli/dawn.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import { initWeights } from '../../src/model/params.ts';
import { registerAgentLoop } from '../../src/rollout/agent/loop.ts';
import type { AgentSample } from '../../src/rollout/agent/sample.ts';
import type { StopReason } from '../../src/rollout/types.ts';
import { buildGsm8kTokenizer } from '../../src/tasks.ts';
import type { ScoredSample, Task } from '../../src/tasks/task.ts';
import { createLocalEngine, engineSizes, type LocalEngine } from '../../src/workers/localEngine.ts';
import { GUARD_MS } from '../part.ts';
import type { Fault } from './faults.ts';

const MODEL: ModelConfig = {
  architecture: 'LlamaForCausalLM',
  vocabSize: 512,
  hiddenSize: 20,
  intermediateSize: 28,
  numHiddenLayers: 1,
  numAttentionHeads: 4,
  numKeyValueHeads: 2,
  headDim: 6,
  rmsNormEps: 1e-6,
  ropeTheta: 10000,
  ropeScaling: null,
  maxPositionEmbeddings: 256,
  tieWordEmbeddings: true,
  qkvBias: false,
  qkNorm: false,
  initializerRange: 0.3,
};

const configOf = ({ actor, rollout, trainer }: NonNullable<Fault['config']> = {}, onError = 'stop') =>
  resolveTrainConfig({
    name: 'user',
    seed: 3,
    model: { path: 'in memory' },
    data: { trainBatchSize: 2, maxPromptLength: 32, maxResponseLength: 160, valMaxSamples: 1 },
    reward: { timeoutS: 0.05 },
    rollout: {
      n: 2,
      maxNumSeqs: 4,
      ...rollout,
      multiTurn: {
        toolTimeoutS: 0.05,
        maxAssistantTurns: 4,
        maxToolCalls: 4,
        ...(rollout as { multiTurn?: object })?.multiTurn,
      },
      agent: { defaultAgentLoop: 'short', timeoutS: 0.05, ...(rollout as { agent?: object })?.agent },
    },
    actor: { ppoMiniBatchSize: 2, ppoMaxTokenLenPerGpu: 1024, skipZeroAdvantages: false, ...actor },
    trainer: { totalTrainingSteps: 10, kernelTuning: 'off', profile: false, onError, ...trainer },
  } as Parameters<typeof resolveTrainConfig>[0]);

const SHORT = { maxNewTokens: 6 };
const short = async (sample: AgentSample): Promise<StopReason> => (await sample.generate(SHORT)).stop ?? 'completed';
/** Runs a turn, a call of the tool `fault`, and another turn that reads its answer. */
const calling = async (sample: AgentSample): Promise<StopReason> => {
  const { stop } = await sample.generate(SHORT);
  return (
    stop ??
    (await sample.callTools([{ name: 'fault', args: {} }])) ??
    (await sample.generate(SHORT)).stop ??
    'completed'
  );
};
registerAgentLoop('short', short);
registerAgentLoop('calling', calling);

const TASK: Task = {
  name: 'user',
  train: (index) => ({ id: `${index}`, messages: [{ role: 'user', content: `${index} plus 3` }], answer: '' }),
  heldOut: () => [],
  reward: ({ response }) => ({ score: [...response].reduce((sum, c) => sum + c.charCodeAt(0), 0) % 17, acc: 0 }),
};

/** Returns metrics without times, and all weights, as text. */
const printOf = async (metrics: Metrics, engine: LocalEngine) =>
  JSON.stringify([
    Object.entries(metrics).filter(([name]) => !/^(timing|perf)/.test(name)),
    [...(await engine.model.exportWeights())].map(([name, { data }]) => [name, [...data]]),
  ]);

/** An engine, its initial weights, and the result of an undisturbed step from these weights. */
export class Bench {
  readonly #engine: LocalEngine;
  readonly #weights: TensorMap;
  readonly #optimizer: TensorMap;
  #under = 0;
  #good = '';
  #untouched = '';

  private constructor(engine: LocalEngine, weights: TensorMap, optimizer: TensorMap) {
    [this.#engine, this.#weights, this.#optimizer] = [engine, weights, optimizer];
  }

  static async open(): Promise<Bench> {
    await installDawn();
    const { tokenizer: tokenizerJson, config: tokenizerConfigJson } = buildGsm8kTokenizer();
    const spec = { ...engineSizes(configOf()), config: MODEL, tokenizerJson, tokenizerConfigJson };
    const engine = await createLocalEngine({ ...spec, weights: initWeights(MODEL, 3) });
    const bench = new Bench(engine, await engine.model.exportWeights(), await engine.model.exportOptimizer());
    const { rollout } = engine;
    const generate = rollout.generate.bind(rollout);
    rollout.generate = async (request) => {
      bench.#under++;
      return generate(request).finally(() => bench.#under--);
    };
    bench.#untouched = await printOf({}, engine);
    await bench.#goodStep(); // compiles kernels and creates buffers
    await bench.#rewind();
    bench.#good = await bench.#goodStep();
    return bench;
  }

  close(): void {
    this.#engine.destroy();
  }

  /** Returns what is wrong with the result of the step, or undefined. @param skip true for trainer.onError: skip */
  async run(fault: Fault, skip: boolean): Promise<string | undefined> {
    await this.#rewind();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<string>((resolve) => (timer = setTimeout(() => resolve('hangs'), GUARD_MS)));
    const wrong = await Promise.race([this.#take(fault, skip), late]).finally(() => clearTimeout(timer));
    if (wrong !== undefined) return wrong;
    if (['told', 'trained'].includes(fault.outcome) || skip) await this.#rewind();
    const next = await this.#goodStep();
    return next === this.#good ? undefined : 'the next step differs from one that never saw the fault';
  }

  async #take(fault: Fault, skip: boolean): Promise<string | undefined> {
    const { outcome, says = /(?:)/ } = fault;
    const said: string[] = [];
    let step: { metrics: Metrics; samples: Sample[] } | undefined;
    let error: unknown;
    try {
      step = await this.#trainer(fault, skip, (reason) => said.push(reason)).step();
    } catch (thrown) {
      error = thrown;
    }
    await this.#rest();
    if (outcome === 'refused' || (outcome === 'skipped' && !skip)) {
      if (step) return 'is taken in silence';
      if (!says.test(describe(error))) return `is refused as "${describe(error)}"`;
      return this.#unmoved();
    }
    if (!step) return `ends the step: "${describe(error)}"`;
    const { metrics, samples } = step;
    if (outcome === 'skipped') {
      if (said.length !== 1 || !says.test(said[0])) return `says ${JSON.stringify(said)}`;
      const left = samples.filter(({ fault }) => fault).length;
      return left === metrics['training/faulty_samples'] && left > 0 ? undefined : `leaves out ${left} samples`;
    }
    if (outcome === 'not finite') {
      if (metrics['training/not_finite'] !== 1) return 'is taken in silence';
      return says.test(said.join(' ')) ? this.#unmoved() : `says ${JSON.stringify(said)}`;
    }
    if (said.length > 0) return `says ${JSON.stringify(said)}`;
    const texts = samples.flatMap(({ messages }) =>
      messages.filter(({ role }) => role === 'tool').map(({ content }) => content),
    );
    const unlike = texts.find((text) => !says.test(text));
    if (outcome === 'told' && (texts.length === 0 || unlike !== undefined))
      return `tells the model ${JSON.stringify(unlike)}`;
    return Number.isFinite(metrics['actor/grad_norm']) ? undefined : 'is trained on without a gradient';
  }

  #trainer({ reward, loop, tool, task, options, config }: Fault, skip: boolean, say: (reason: string) => void) {
    let scored = 0;
    const faulty = { ...TASK, ...task };
    if (reward)
      faulty.reward = (sample: ScoredSample) =>
        scored++ === 1 ? (reward() as ReturnType<Task['reward']>) : TASK.reward(sample);
    if (tool)
      faulty.tools = [
        { name: 'fault', description: '', parameters: { type: 'object', properties: {} }, execute: () => '', ...tool },
      ];
    let started = 0;
    if (loop)
      registerAgentLoop('faulty', (sample) =>
        started++ === 1 || options?.toolParser ? (loop(sample) as Promise<StopReason>) : short(sample),
      );
    const defaultAgentLoop = loop ? 'faulty' : tool ? 'calling' : 'short';
    const rollout: { agent?: object } | undefined = config?.rollout;
    return new GrpoTrainer({
      config: configOf(
        { ...config, rollout: { ...rollout, agent: { ...rollout?.agent, defaultAgentLoop } } },
        skip ? 'skip' : 'stop',
      ),
      task: faulty,
      engine: this.#engine,
      onFault: ({ reason }) => say(reason),
      ...(options as Partial<GrpoTrainerOptions>),
    });
  }

  async #goodStep(): Promise<string> {
    const { metrics } = await new GrpoTrainer({ config: configOf(), task: TASK, engine: this.#engine }).step();
    return printOf(metrics, this.#engine);
  }

  async #unmoved(): Promise<string | undefined> {
    return (await printOf({}, this.#engine)) === this.#untouched ? undefined : 'moves weights';
  }

  async #rewind(): Promise<void> {
    await this.#engine.model.importWeights(this.#weights);
    await this.#engine.model.importOptimizer(this.#optimizer);
    await this.#engine.rollout.resetCache();
    await this.#engine.rollout.takeStats();
  }

  /** Waits until the samples of a failed step have ended. */
  async #rest(): Promise<void> {
    while (this.#under > 0) await new Promise((resolve) => setTimeout(resolve, 5));
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
