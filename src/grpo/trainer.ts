/**
 * GrpoTrainer: the single controller of a run. A step draws prompts, generates a group of samples for each, scores them,
 * turns rewards into group-relative advantages, and updates the policy mini-batch by mini-batch. The engine may live in
 * this thread or in a worker; the trainer cannot tell.
 */

import { type AgentLimits, agentLoopOf } from '../rollout/agent/loop.ts';
import { type ToolParser, toolParserOf } from '../rollout/tools/parser.ts';
import type { SamplingParams } from '../rollout/types.ts';
import type { Task } from '../tasks/task.ts';
import type { TrainConfig } from './config/types.ts';
import { correctionSettings } from './correction/settings.ts';
import { adaptEntropy, adaptKl, entropyCoeffOf, refreshReference } from './update/controllers.ts';
import { dataMetrics, meanTrained, type Metrics, throughput, timingMetrics, validationMetrics } from './metrics.ts';
import { OverSampler, staleShare } from './generate/overSampling.ts';
import { generateSamples, type OutsideSeconds, startGroups } from './generate/samples.ts';
import { groupsWithSignal } from './advantages/shaping.ts';
import type { Sample } from './update/batch.ts';
import { type CustomAdvantage, stepTokens } from './update/stepTokens.ts';
import type { Checkpoint, FitResult, TrainerEngine, TrainerEvents, TrainerState } from './types.ts';
import type { PolicyLoss } from './losses/index.ts';
import { UpcomingProblems } from './generate/problems.ts';
import { type CustomLoss, PolicyUpdater } from './update/updater.ts';

export interface ValidateOptions {
  greedy?: boolean;
  onSample?: (sample: Sample) => void;
}

export interface GrpoTrainerOptions extends TrainerEvents {
  config: TrainConfig;
  task: Task;
  engine: TrainerEngine;
  /**
   * Replaces the configured policy loss: a row with its WGSL, which runs fused as the built-in ones do, or a function that
   * runs on this thread between forward and backward.
   */
  loss?: CustomLoss | PolicyLoss;
  /** Replaces the parser that rollout.multiTurn.format names. */
  toolParser?: ToolParser;
  /** Replaces the configured advantage estimator. */
  advantage?: CustomAdvantage;
}

const VALIDATION_BATCH = 0xffffffff; // no training step has this number

export class GrpoTrainer {
  readonly #o: GrpoTrainerOptions;
  readonly #updater: PolicyUpdater;
  /** The task with the rewards by models that the config adds; evaluations use the task itself. */
  readonly #scored: Task;
  readonly #overSampler: OverSampler | undefined;
  #state: TrainerState = { step: 0, problems: 0, updates: 0 };
  #stopRequested = false;
  /** Problems whose groups were under way when the run was left. */
  #startOver: number[] = [];
  readonly #problems: UpcomingProblems;

  constructor(options: GrpoTrainerOptions) {
    agentLoopOf(options.config.rollout.agent.defaultAgentLoop); // a name that does not exist is said before anything runs
    this.#o = options;
    this.#scored = scoredTask(options);
    this.#updater = new PolicyUpdater(options.config, options.engine, options.loss);
    this.#problems = new UpcomingProblems(options.task, options.config, options.engine.tokenizer);
    const { overSampleRate: rate, partialRollout: partial } = options.config.rollout;
    if (rate > 0) this.#overSampler = new OverSampler(options.engine.rollout, { rate, partial });
  }

  /** Trains until totalTrainingSteps, or until `stop`. */
  async fit(): Promise<FitResult> {
    const { trainer } = this.#o.config;
    const history: Metrics[] = [];
    if (this.#state.step === 0 && trainer.valBeforeTrain) {
      const metrics = { 'training/global_step': 0, ...(await this.validate({ greedy: true })) };
      history.push(metrics);
      await this.#o.onStep?.(metrics, []);
    }
    while (this.#state.step < trainer.totalTrainingSteps && !this.#stopRequested) {
      const { metrics, samples } = await this.step();
      const last = this.#state.step === trainer.totalTrainingSteps;
      if (last || (trainer.testFreq > 0 && this.#state.step % trainer.testFreq === 0))
        Object.assign(metrics, await this.validate({ greedy: last }));
      history.push(metrics);
      await this.#o.onStep?.(metrics, samples);
      if (trainer.saveFreq > 0 && this.#state.step % trainer.saveFreq === 0)
        await this.#o.onCheckpoint?.(await this.checkpoint());
    }
    await this.#overSampler?.close();
    this.#startOver = this.#state.carried ?? [];
    return { state: { ...this.#state }, history, stopped: this.#stopRequested };
  }

  /** Ends `fit` after the step in hand. */
  stop(): void {
    this.#stopRequested = true;
  }

  /** One GRPO step: generate, score, advantages, update. */
  async step(): Promise<{ metrics: Metrics; samples: Sample[] }> {
    const { config } = this.#o;
    const step = this.#state.step + 1;
    const started = performance.now();
    const generated = await (this.#overSampler ? this.#overSample(this.#overSampler, step) : this.#generate(step));
    const { samples } = generated;
    const afterGenerate = performance.now();
    const refLogProbs = await this.#updater.reference(samples);
    const afterRef = performance.now();
    const correction = correctionSettings(config);
    if (!correction.bypassMode) this.#o.onPhase?.('log-probs', step);
    const trainerLogProbs = correction.bypassMode ? undefined : await this.#updater.proximal(samples);
    const afterProximal = performance.now();
    const { klCoef } = this.#state;
    const baselines = config.algorithm.advEstimator === 'remax' ? await this.#greedyScores(samples, step) : undefined;
    const tokens = stepTokens(config, samples, {
      ...(baselines && { baselines }),
      ...(refLogProbs && { refLogProbs }),
      ...(klCoef !== undefined && { klCoef }),
      ...(trainerLogProbs && { trainerLogProbs, correction }),
      ...(this.#o.advantage && { advantage: this.#o.advantage }),
    });
    adaptKl(config, this.#state, tokens.metrics, samples.length);
    samples.forEach((sample, s) => (sample.advantage = meanTrained(tokens.advantages[s], tokens.masks[s])));
    this.#o.onPhase?.('update', step);
    this.#updater.setEntropyCoeff(entropyCoeffOf(config, this.#state));
    const { updates, problems } = this.#state;
    const more = step < config.trainer.totalTrainingSteps;
    const update = await this.#updater.update(samples, tokens, step, updates, () => {
      if (more) this.#problems.prepare(problems);
    });
    this.#state.updates += update.updates;
    adaptEntropy(config, this.#state, update.metrics);
    this.#o.onPhase?.('sync', step);
    const beforeSync = performance.now();
    await this.#o.engine.rollout.resetCache();
    const ended = performance.now();
    this.#state.step = step;
    await refreshReference(config, this.#o.engine, step);
    const seconds = {
      gen: (afterGenerate - started) / 1000,
      tools: generated.seconds.tools,
      reward: generated.seconds.reward,
      ref: (afterRef - afterGenerate) / 1000,
      ...update.seconds,
      old_log_prob: (afterProximal - afterRef) / 1000,
      sync: (ended - beforeSync) / 1000,
      step: (ended - started) / 1000,
    };
    const metrics = {
      'training/global_step': step,
      ...dataMetrics({
        trajectories: samples.map((s) => s.trajectory),
        rewards: samples.map((s) => s.reward),
        finalRewards: tokens.rewards,
        groups: samples.map((s) => s.group),
        advantages: tokens.advantages,
        maxResponseLength: config.data.maxResponseLength,
        maxPromptLength: config.data.maxPromptLength,
      }),
      ...tokens.metrics,
      ...update.metrics,
      ...generated.metrics,
      ...timingMetrics(
        seconds,
        samples.map((s) => s.trajectory),
      ),
      ...throughput(generated.stats, update.trainedTokens, seconds),
    };
    return { metrics, samples };
  }

  /**
   * Held-out accuracy: sampled as `rollout.valKwargs` says, and greedy as well when asked. Uses the outcome, not shaping.
   * `onSample` sees every sampled conversation as it ends, not the greedy ones.
   */
  async validate({ greedy = false, onSample }: ValidateOptions = {}): Promise<Metrics> {
    const { config, task } = this.#o;
    this.#o.onPhase?.('validate', this.#state.step);
    await this.#overSampler?.resume();
    const started = performance.now();
    const problems = task.heldOut(config.data.valSize);
    const { n, temperature, topK, topP, minP } = config.rollout.valKwargs;
    const run = async (n: number, sampling: Partial<SamplingParams>, seen: Pick<ValidateOptions, 'onSample'> = {}) => {
      const base = { ...this.#generateOptions(VALIDATION_BATCH, n), task: { ...task, reward: outcomeOf(task) } };
      const options = { ...base, ...seen, sampling: { ...base.sampling, ...sampling } };
      const { samples } = await generateSamples(problems, options);
      return problems.map((_, p) => samples.slice(p * n, (p + 1) * n).map((s) => s.reward.acc));
    };
    const metrics = validationMetrics(
      task.name,
      await run(n, { temperature, topK, topP, minP }, onSample ? { onSample } : {}),
    );
    if (greedy) {
      const accs = (await run(1, { temperature: 0, topK: 0, topP: 1, minP: 0 }))
        .flat()
        .filter((acc) => !Number.isNaN(acc));
      if (accs.length > 0) metrics[`val-core/${task.name}/acc/greedy`] = accs.reduce((a, b) => a + b, 0) / accs.length;
    }
    await this.#o.engine.rollout.takeStats();
    return { ...metrics, 'timing_s/testing': (performance.now() - started) / 1000 };
  }

  async checkpoint(): Promise<Checkpoint> {
    const { model, reference } = this.#o.engine;
    const refreshed = this.#o.config.trainer.refUpdateFreq > 0 ? reference : undefined;
    return {
      state: { ...this.#state },
      weights: await model.exportWeights(),
      optimizer: await model.exportOptimizer(),
      ...(refreshed && { reference: await refreshed.exportWeights() }),
    };
  }

  /** Continues from a checkpoint; its weights replace the engine's. */
  async restore({ state, weights, optimizer, reference }: Checkpoint): Promise<void> {
    const { model, rollout, reference: frozen, judge } = this.#o.engine;
    await model.importWeights(weights);
    await model.importOptimizer(optimizer);
    if (reference) await frozen?.importWeights(reference);
    await Promise.all([rollout.resetCache(), judge?.resetCache()]);
    this.#state = { ...state };
    this.#problems.clear();
    this.#startOver = [...(state.carried ?? [])];
  }

  get state(): TrainerState {
    return { ...this.#state };
  }

  #generateOptions(batch: number, n: number) {
    const { config, engine } = this.#o;
    const task = this.#scored;
    const { temperature, topK, topP, minP } = config.rollout;
    const { repetitionPenalty, presencePenalty, frequencyPenalty, minNewTokens } = config.rollout;
    const { stop, includeStopStrInOutput } = config.rollout;
    const sampling: SamplingParams = {
      ...{ temperature, topK, topP, minP },
      ...{ repetitionPenalty, presencePenalty, frequencyPenalty, minNewTokens },
      maxNewTokens: config.data.maxResponseLength,
      stopTokenIds: engine.tokenizer.eosTokenIds,
      ...(stop && { stop, includeStopStrInOutput }),
    };
    const { rollout, tokenizer } = engine;
    const { enable, toolSchemasInPrompt, constrainToolCalls, format } = config.rollout.multiTurn;
    const agent = {
      agentLoop: config.rollout.agent.defaultAgentLoop,
      toolParser: this.#o.toolParser ?? toolParserOf(format),
      toolSchemasInPrompt,
      ...(enable && constrainToolCalls && { constrainToolCalls }),
    };
    const from = { seed: config.seed, batch, n, profile: config.trainer.profile };
    return { engine: rollout, tokenizer, task, sampling, limits: agentLimits(config), agent, ...from };
  }

  /**
   * Samples of one step; with filterGroups, until enough groups carry a signal (DAPO): every group left out is a credit for
   * another prompt, up to maxNumGenBatches x trainBatchSize prompts in all.
   */
  async #generate(step: number) {
    const { config, engine } = this.#o;
    const { trainBatchSize } = config.data;
    const filter = config.algorithm.filterGroups;
    const seconds: OutsideSeconds = { tools: 0, reward: 0 };
    const kept: Sample[] = [];
    let last: Sample[] = [];
    let [batches, drawn] = [0, 0];
    const missing = () => trainBatchSize - kept.length / config.rollout.n;
    const credits = () => (filter.enable ? filter.maxNumGenBatches : 1) * trainBatchSize - drawn;
    this.#o.onPhase?.('generate', step);
    while (missing() > 0 && credits() > 0) {
      const count = Math.min(missing(), credits());
      const first = this.#state.problems;
      this.#state.problems += count;
      const problems = Array.from({ length: count }, (_, i) => this.#problems.take(first + i));
      const options = { ...this.#generateOptions(step, config.rollout.n), firstGroup: drawn };
      const onSample = (sample: Sample) => this.#o.onSample?.(sample, step);
      const made = await generateSamples(problems, { ...options, onSample });
      seconds.tools += made.seconds.tools;
      seconds.reward += made.seconds.reward;
      kept.push(...(filter.enable ? groupsWithSignal(made.samples, filter.metric) : made.samples));
      last = [...last, ...made.samples].slice(-trainBatchSize * config.rollout.n);
      drawn += count;
      batches++;
    }
    // A filter that left nothing would leave nothing to train on; the last prompts are then used as they are.
    const samples = kept.length > 0 ? kept : last;
    const stats = await engine.rollout.takeStats();
    const metrics: Metrics = filter.enable
      ? {
          'training/num_gen_batches': batches,
          'training/num_gen_prompts': drawn,
          'training/evicted_groups': drawn - kept.length / config.rollout.n,
        }
      : {};
    return { samples, seconds, stats, metrics };
  }

  /** As #generate, with more groups than are needed: those that are complete first. */
  async #overSample(sampler: OverSampler, step: number) {
    const { config, engine } = this.#o;
    const onSample = (sample: Sample) => this.#o.onSample?.(sample, step);
    this.#o.onPhase?.('generate', step);
    const start = (count: number) =>
      Array.from({ length: count }, () => {
        // Its own number in every step: groups outlive one.
        const firstGroup = this.#startOver.shift() ?? this.#state.problems++;
        const controller = new AbortController();
        const { signal } = controller;
        const options = { ...this.#generateOptions(step, config.rollout.n), firstGroup, signal, onSample };
        const { groups, seconds } = startGroups([this.#problems.take(firstGroup)], options);
        return { problem: firstGroup, samples: groups[0], seconds, abort: () => controller.abort() };
      });
    const done = await sampler.take(config.data.trainBatchSize, start);
    this.#state.carried = sampler.carried;
    const samples = (await Promise.all(done.map((group) => group.samples))).flat();
    const sum = (name: keyof OutsideSeconds) => done.reduce((total, { seconds }) => total + seconds[name], 0);
    const metrics: Metrics = {
      'training/carried_groups': sampler.carried.length,
      'training/stale_tokens_share': staleShare(samples),
    };
    const stats = await engine.rollout.takeStats();
    return { samples, seconds: { tools: sum('tools'), reward: sum('reward') }, stats, metrics };
  }

  /** ReMax's baseline: the score of one greedy answer to each sample's prompt. */
  async #greedyScores(samples: Sample[], step: number): Promise<number[]> {
    const problems = new Map(samples.map(({ group, problem }) => [group, problem]));
    const options = this.#generateOptions(step, 1);
    options.sampling = { ...options.sampling, temperature: 0, topK: 0, topP: 1, minP: 0 };
    const { samples: greedy } = await generateSamples([...problems.values()], options);
    const scores = new Map([...problems.keys()].map((group, i) => [group, greedy[i].reward.score]));
    return samples.map(({ group }) => scores.get(group)!);
  }
}

export function agentLimits({ data, rollout }: TrainConfig): AgentLimits {
  const { enable, maxAssistantTurns, maxToolCalls, maxToolResponseLength, toolTimeoutS } = rollout.multiTurn;
  const { sampleTimeoutS, toolResponseTruncateSide, onParseError, onToolFailure } = rollout.multiTurn;
  return {
    maxAssistantTurns: enable ? maxAssistantTurns : 1,
    maxToolCalls: enable ? maxToolCalls : 0,
    maxToolResponseLength,
    toolTimeoutMs: toolTimeoutS * 1000,
    ...(sampleTimeoutS !== undefined && { sampleTimeoutMs: sampleTimeoutS * 1000 }),
    ...{ toolResponseTruncateSide, onParseError, onToolFailure },
    contextLength: data.maxPromptLength + data.maxResponseLength,
    maxPromptLength: data.maxPromptLength,
    maxResponseLength: data.maxResponseLength,
  };
}

/** The task with the rewards by models that the config adds; their code is loaded at the first sample. */
function scoredTask({ task, config, engine }: GrpoTrainerOptions): Task {
  const { judge, model } = config.reward;
  if (judge.weight === 0 && model.path === undefined) return task;
  let scored: Promise<Task> | undefined;
  const load = async () => (await import('./modelRewards.ts')).withModelRewards(task, config, engine);
  return { ...task, reward: async (sample) => (await (scored ??= load())).reward(sample) };
}

/** The task's reward with its shaping taken off. */
const outcomeOf =
  (task: Task): Task['reward'] =>
  async (sample) => {
    const reward = await task.reward(sample);
    return { ...reward, score: reward.acc };
  };
