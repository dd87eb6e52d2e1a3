/** Prints what a run will do and how long it will take, before its first step. */

import { batchTable } from '../../grpo/config/rules.ts';
import type { AdapterSummary } from '../../gpu/adapter.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { timedStep } from '../../extensions/checks/index.ts';
import { givenHeldOut } from '../../grpo/generate/trainingSet.ts';
import { pipelineOf } from '../../grpo/pipeline/settings.ts';
import type { ModelConfig } from '../../model/config.ts';
import type { LoraConfig } from '../../model/lora/config.ts';
import { parameterCount } from '../../model/params.ts';
import type { RunSession } from '../../runs/trainingRun.ts';
import { dtypeNote, type EngineSpec } from '../../workers/engineSpec.ts';
import { type PlanItem, planLines, type Sizes } from '../../workers/memoryPlan.ts';
import { plural } from '../../ui/format.ts';
import { clock, resolvedAlgorithm, say, whileWorking } from './progress.ts';

/**
 * Parameters from which a model counts as a pretrained one. It gets an estimate before step 1, because a smaller model finishes step 1 sooner
 * than an estimate takes. A new task with it trains LoRA adapters.
 */
const LARGE_PARAMETERS = 10e6;
/** A timing that could take more seconds is left out. The estimate is then from fewer samples than rollout generates at once. */
const LONG_TIMING_S = 60;
/** Each timing has this many times the groups of the one before, until all that rollout generates at once. */
const GROWTH = 4;
/** If a step takes more seconds, the estimate also names the settings that make steps shorter. */
const LONG_STEP_S = 60;

/** True for a model whose steps can take long, and which was not trained on the shipped tasks. */
export const isLarge = (model: ModelConfig): boolean => parameterCount(model) >= LARGE_PARAMETERS;

/** Line printed before the kernels are compiled, which takes seconds on a software adapter. */
export const COMPILING = 'kernels: compiling';

/**
 * Prints the memory plan of an engine before the engine is created.
 * @param offered the engine's sizes, with only those options that the adapter supports
 * @param items the plan of these sizes
 */
export function sayMemory(asked: Pick<EngineSpec, 'dtype'>, offered: Sizes, items: PlanItem[]): void {
  const note = dtypeNote(asked, offered);
  if (note) say(note);
  for (const line of planLines(items)) say(line);
  if (offered.lowered) say(`lowered to fit: ${offered.lowered.note}`);
  say(COMPILING);
}

/** Prints the name of the GPU adapter that an engine runs on. */
export function sayAdapter({ description, vendor, architecture, isSoftware }: AdapterSummary): void {
  say(
    `adapter: ${description || `${vendor} ${architecture}`.trim()}${isSoftware ? ' (software: correct, but slow)' : ''}`,
  );
}

/**
 * Prints the batch sizes, the algorithm and the learning rate, and returns them.
 * @param asked the config before `completedConfig` replaced "auto" by numbers
 */
export function sayPlan(
  config: TrainConfig,
  asked: TrainConfig,
  { model, lora }: { model: { config: ModelConfig }; lora?: LoraConfig | undefined },
) {
  const batches = batchTable(config);
  const { samples, updates, maxTokens } = batches;
  const { maxPromptLength, maxResponseLength } = config.data;
  say(
    `batches: ${plural(samples, 'sample')} per step, ${plural(updates, 'update')} per step, at most ${maxTokens} tokens per update`,
  );
  say(
    `lengths: prompts of at most ${maxPromptLength} tokens, responses of at most ${maxResponseLength} with tool output`,
  );
  const algorithm = resolvedAlgorithm(config);
  say(`algorithm: ${algorithm}`);
  if (config.rollout.n === 1 && config.algorithm.advEstimator === 'grpo')
    say(
      'rollout.n is 1: with one sample per prompt the advantage is the reward, and no sample is compared with another',
    );
  const plan = { batches, lengths: { maxPromptLength, maxResponseLength }, algorithm, lr: config.actor.optim.lr };
  if (asked.actor.optim.lr !== 'auto') return plan;
  const millions = (parameterCount(model.config) / 1e6).toPrecision(3);
  const of = lora ? ' trained by LoRA' : '';
  say(`learning rate: ${config.actor.optim.lr}, for ${millions} M parameters${of}; actor.optim.lr sets another`);
  return plan;
}

/** Estimated duration of a run, in seconds. */
interface Estimate {
  /** How a step can differ from the estimate, as printed before the seconds; '' = by little. */
  bound: '' | 'at most' | 'at least' | 'about';
  generationS: number;
  updateS: number;
  stepS: number;
  evaluationS: number;
  /** Seconds of `steps` steps and of the evaluations before, between and after them. */
  totalS: number;
  /** Steps that are still to do. */
  steps: number;
  timedSamples: number;
}

/**
 * Times the generation and the update of one group, then of more groups, up to those that rollout generates at once. Prints and returns the
 * estimated duration of a step, of an evaluation and of the run, from the timing with the fewest seconds per group. Does not change the
 * run's state. Prints nothing if `signal` aborts, or if reward models score the samples.
 * @param done step after which the run resumes
 */
export async function sayEstimate(
  config: TrainConfig,
  { engine, task }: Pick<RunSession, 'engine' | 'task'>,
  signal: AbortSignal,
  done = 0,
): Promise<Estimate | undefined> {
  const { algorithm, data, rollout, trainer } = config;
  const secondsOf = ({ generationS, updateS }: { generationS: number; updateS: number }) => generationS + updateS;
  const time = (problems: number) =>
    whileWorking(`estimate: timing ${plural(problems * rollout.n, 'sample')}`, () =>
      timedStep({ config, engine, task }, { problems, signal }),
    );
  // A first timing also waits for kernels that compile. It is repeated unless it took `longS` seconds.
  const warmTime = async (problems: number, longS: number) => {
    const cold = await time(problems);
    return cold && secondsOf(cold) < longS ? time(problems) : cold;
  };
  const atOnce = Math.min(data.trainBatchSize, Math.max(1, Math.floor(rollout.maxNumSeqs / rollout.n)));
  let problems = 1;
  let last = await warmTime(problems, LONG_TIMING_S);
  let timed = last && { ...last, problems };
  while (last && timed && problems < atOnce && GROWTH * secondsOf(last) < LONG_TIMING_S) {
    problems = Math.min(GROWTH * problems, atOnce);
    last = await warmTime(problems, LONG_TIMING_S / GROWTH);
    // More groups at once never take longer per group, unless kernels compiled meanwhile.
    if (last && secondsOf(last) / problems < secondsOf(timed) / timed.problems) timed = { ...last, problems };
  }
  if (!last || !timed) return undefined;
  const perBatch = data.trainBatchSize / timed.problems;
  const [generationS, updateS] = [timed.generationS * perBatch, timed.updateS * perBatch];
  const { isAsync, maxGroups, stepGroups } = pipelineOf(config);
  const overlaps = isAsync && maxGroups > stepGroups;
  const isSplit = trainer.placement === 'split';
  // On one device only waits for tools overlap with the update. Two devices can be on one GPU, and then share its time.
  const stepS = overlaps && isSplit ? Math.max(generationS, updateS) : generationS + updateS;
  const isHigh = timed.problems < atOnce || (overlaps && !isSplit);
  const isLow = algorithm.filterGroups.enable || (overlaps && isSplit);
  const bound = isHigh && isLow ? 'about' : isHigh ? 'at most' : isLow ? 'at least' : '';
  const timedSamples = timed.problems * rollout.n;
  const heldOut = (await givenHeldOut(task, config)).length;
  const evaluation = (greedy: number) => (timed.generationS / timedSamples) * heldOut * (rollout.valKwargs.n + greedy);
  const { totalTrainingSteps, testFreq, valBeforeTrain } = trainer;
  const steps = Math.max(0, totalTrainingSteps - done);
  const evaluated = (step: number) => (testFreq > 0 ? Math.floor(step / testFreq) : 0);
  const between = steps > 0 ? evaluated(totalTrainingSteps - 1) - evaluated(done) : 0;
  const atEnds = Number(done === 0 && valBeforeTrain) + Number(steps > 0);
  const evaluationS = evaluation(1);
  const totalS = steps * stepS + between * evaluation(0) + atEnds * evaluationS;
  const after = done > 0 ? ` after step ${done}` : '';
  say(
    `estimate: ${bound && `${bound} `}${clock(stepS)} per step, ${clock(evaluationS)} per evaluation, ${clock(totalS)} for ` +
      `${plural(steps, 'step')}${after} (timed on ${plural(timedSamples, 'sample')})`,
  );
  if (stepS > LONG_STEP_S)
    say(
      'For shorter steps, lower data.trainBatchSize, rollout.n or data.maxResponseLength; for shorter evaluations, data.valMaxSamples.',
    );
  return { bound, generationS, updateS, stepS, evaluationS, totalS, steps, timedSamples };
}
