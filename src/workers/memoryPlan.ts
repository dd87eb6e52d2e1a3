/**
 * Plans GPU memory before the first allocation, by running the constructors of an engine on a device that only counts bytes. A run that
 * does not fit is refused, with the numbers and changes that would help.
 */

import { OutOfMemoryError } from '../errors.ts';
import type { AdapterSummary } from '../gpu/adapter.ts';
import type { ModelConfig } from '../model/config.ts';
import { PlannedGpu } from '../gpu/plannedGpu.ts';
import { stagingBytes } from '../gpu/staging.ts';
import { allocateCopy, allocateModel, type LlamaModel, type ModelOptions, trainedBlocks } from '../model/llama.ts';
import { LORA_MODULES } from '../model/lora/config.ts';
import { readsPacked } from '../model/weights/plan.ts';
import { EXPORT_PIECE_BYTES } from '../model/weights/transfer.ts';
import { WgslEngine } from '../model/wgslEngine.ts';
import { Decoder } from '../rollout/decode/decoder.ts';
import type { LoweredSettings } from '../grpo/types.ts';
import { type OtherEngine, otherEngineOf, type DeviceSpec } from './engineSpec.ts';
import {
  JUDGE_OPTIONS,
  judgeLengths,
  policyOptions,
  positionsOf,
  referenceOptions,
  rolloutPlace,
} from './modelOptions.ts';

/** One line of the plan: a purpose and its bytes. */
export interface PlanItem {
  name: string;
  bytes: number;
}

export type Sizes = OtherEngine &
  Pick<
    DeviceSpec,
    'config' | 'dtype' | 'withoutReference' | 'maxMemoryMib' | 'otherEngines' | 'lowerToFit' | 'lowered'
  > & {
    /** Maximum number of bytes of a buffer that the device can bind. Default: enough for any tensor. */
    maxArenaBytes?: number;
    /** Adapter whose kernels are planned. Default: a hardware GPU. */
    adapterSummary?: AdapterSummary;
  };

/**
 * Returns the bytes by purpose that an engine with these sizes allocates, and those of the run's other engines. They are exact except for
 * read-backs.
 */
export function planMemory(sizes: Sizes): PlanItem[] {
  const {
    maxTokenLen,
    rollout,
    judge,
    withReference,
    lora,
    enableGradientCheckpointing,
    optimizer,
    use = 'train',
  } = sizes;
  const gpu = new PlannedGpu(sizes.maxArenaBytes, sizes.adapterSummary);
  const lines = new Map<string, number>();
  /** Runs `build` and adds the bytes that it allocates to lines of the plan, by label. Returns the result of `build`. */
  const count = <T>(build: () => T, lineOf: (label: string) => string): T => {
    const { made, bytes } = gpu.during(build);
    for (const [label, n] of bytes) lines.set(lineOf(label), (lines.get(lineOf(label)) ?? 0) + n);
    return made;
  };
  /**
   * Models are loaded one after the other, before any other allocation. Bytes of the models loaded so far, and the maximum during loading.
   */
  let [loaded, peak] = [0, 0];
  const load = (
    options: ModelOptions,
    lineOf: (label: string) => string,
    { config, maxPositions } = { config: sizes.config, maxPositions: positionsOf(sizes) },
  ): LlamaModel => {
    const before = gpu.counters.bytes;
    const model = count(() => plannedModel(gpu, config, maxPositions, options), lineOf);
    const { isKept, bytes } = model.weights.scratch;
    loaded += gpu.counters.bytes - before;
    peak = Math.max(peak, loaded + (isKept ? 0 : bytes));
    return model;
  };

  const model = load(policyOptions(sizes), modelLine);
  if (use !== 'generate') {
    const engine = new WgslEngine(gpu, model, maxTokenLen, { enableGradientCheckpointing, optimizer });
    const training = use === 'train';
    count(() => engine.reserve({ training, policyLoss: training && rollout !== undefined }), trainingLine(training));
  }
  const { lora: _, ...base } = model; // with adapters the reference is the base with adapters off
  const reference = withReference && !lora ? load(referenceOptions(sizes), () => 'reference model') : base;
  if (reference !== base)
    count(
      () => new WgslEngine(gpu, reference, maxTokenLen).reserve(),
      () => 'reference model',
    );
  const judgeModel =
    sizes.judgeModel &&
    load(referenceOptions(sizes), () => 'judge model', {
      config: sizes.judgeModel.config,
      ...judgeLengths(sizes, sizes.judgeModel.config),
    });
  if (judgeModel && sizes.judgePositions !== undefined) {
    const { maxTokenLen: rows } = judgeLengths(sizes, judgeModel.config);
    count(
      () => new WgslEngine(gpu, judgeModel, rows, JUDGE_OPTIONS).reserve(),
      () => 'judge model',
    );
  }
  let decoder: Decoder | undefined;
  const place = rolloutPlace(sizes);
  if (rollout && place.isHere) {
    const line = (label: string) => (label.startsWith('kv.') ? 'KV cache' : 'rollout activations');
    const copy = () => allocateCopy(gpu, model);
    const drawn = place.hasCopy ? count(copy, () => 'rollout weights') : model;
    const made = (decoder = count(() => new Decoder(gpu, drawn, rollout), line));
    if (sizes.adjustedDraws)
      count(
        () => made.reserveAdjusted(),
        () => 'penalties',
      );
  }
  if (judge && (judgeModel || withReference))
    count(
      () => new Decoder(gpu, judgeModel ?? reference, judge),
      () => 'judge',
    );
  lines.set('staging', Math.max(readBackBytes(sizes, model, decoder), peak - gpu.counters.bytes));
  for (const other of othersOf(sizes)) lines.set(OTHERS, (lines.get(OTHERS) ?? 0) + totalBytes(planMemory(other)));
  return [...lines].map(([name, bytes]) => ({ name, bytes }));
}

const OTHERS = 'other engines of the run';

/** Returns the complete sizes of the run's other engines on the same adapter. */
const othersOf = ({ config, dtype, maxArenaBytes, adapterSummary, otherEngines = [] }: Sizes): Sizes[] =>
  otherEngines.map((other) => ({
    ...other,
    ...{ config, dtype },
    ...(maxArenaBytes !== undefined && { maxArenaBytes }),
    ...(adapterSummary && { adapterSummary }),
  }));

/** Returns the sizes after a change of settings, which are those of all engines of the run. */
function changedBy<T extends Sizes>(sizes: T, change: Partial<Sizes>): T {
  const { rollout, ...others } = change;
  const otherEngines = sizes.otherEngines?.map((other) =>
    otherEngineOf({ ...other, ...others, ...(other.rollout && rollout && { rollout }) }),
  );
  return { ...sizes, ...change, ...(otherEngines && { otherEngines }) };
}

/**
 * Maximum number of read-backs at the same time. It is reached if rollout, which can start a pass before the last one was read, runs during
 * training.
 */
const READS_AT_A_TIME = 3;

/**
 * Returns the size of the buffers for read-backs: the largest read-back times the number that can be in flight. The largest is that of a
 * batch's log-probs and entropies, of trained weights for a checkpoint (or a bucket of them), or of sampled tokens. Includes uploads of
 * weights from another device.
 */
function readBackBytes(sizes: Sizes, model: LlamaModel, decoder: Decoder | undefined): number {
  const { use = 'train', maxTokenLen, judgeModel } = sizes;
  const { hasCopy, sends, receives } = rolloutPlace(sizes);
  const { lora, weights } = model;
  const blocks = [...trainedBlocks(model).values()].reduce((sum, { bytes }) => sum + bytes, 0);
  const judged = judgeModel ? judgeLengths(sizes, judgeModel.config).maxTokenLen : 0;
  const outputs = use === 'generate' ? 0 : 2 * Math.max(maxTokenLen, judged) * 4;
  const trained = use === 'train' ? (lora?.weights ?? weights).buffers : [];
  const piece = Math.min(EXPORT_PIECE_BYTES, Math.max(sends ? blocks : 0, ...trained.map(({ bytes }) => bytes)));
  const largest = stagingBytes(Math.max(outputs, piece, decoder?.stateBytes ?? 0));
  return largest * (hasCopy ? READS_AT_A_TIME : 1) + (receives ? blocks : 0);
}

/** Allocates a model without its weights. */
export const plannedModel = (
  gpu: PlannedGpu,
  config: ModelConfig,
  maxPositions: number,
  options: ModelOptions,
): LlamaModel =>
  allocateModel(gpu, config, maxPositions, {
    ...options,
    packing: { pack: () => {}, product: readsPacked(config) ? () => {} : undefined },
  });

function modelLine(label: string): string {
  if (label.startsWith('weights.half')) return 'weights in float16';
  return label.startsWith('lora') ? 'adapters' : 'weights';
}

const trainingLine = (training: boolean) => (label: string) => {
  if (label.startsWith('adamw.')) return 'AdamW moments';
  if (/^(muon|sgd)\./.test(label)) return label.endsWith('momentum_buffer') ? 'momentum' : 'Newton-Schulz';
  if (/^(gradients|grad_)/.test(label)) return 'gradients';
  return training ? 'training activations' : 'activations';
};

/** A change of one setting, and the bytes that the change would save. */
interface Saving {
  change: string;
  bytes: number;
}

/** Returns possible changes of settings, each with the bytes that it alone would save, largest first. */
export function planSavings(sizes: Sizes): Saving[] {
  const total = totalBytes(planMemory(sizes));
  return changesOf(sizes)
    .map(({ change, ...changed }) => ({ change, bytes: total - totalBytes(planMemory(changedBy(sizes, changed))) }))
    .filter(({ bytes }) => bytes > 0)
    .sort((a, b) => b.bytes - a.bytes);
}

const ADVISED_LORA = { rank: 16, alpha: 16, dropout: 0, useRslora: false, targetModules: LORA_MODULES, seed: 1 };

function changesOf(sizes: Sizes): (Partial<Sizes> & { change: string })[] {
  const { rollout, lora, maxTokenLen, maxPositions, use = 'train' } = sizes;
  const changes: (Partial<Sizes> & { change: string })[] = [];
  if (use === 'train') {
    if (!lora) changes.push({ change: `model.loraRank=${ADVISED_LORA.rank}`, lora: ADVISED_LORA });
    if (!sizes.enableGradientCheckpointing)
      changes.push({ change: 'model.enableGradientCheckpointing=true', enableGradientCheckpointing: true });
    if ((sizes.optimizer ?? { name: 'AdamW' }).name !== 'SignSGD')
      changes.push({ change: 'actor.optim.optimizer=SignSGD', optimizer: { name: 'SignSGD' } });
    if (sizes.withReference && sizes.withoutReference !== undefined && !lora)
      changes.push({ change: sizes.withoutReference, withReference: false });
    const rows = Math.max(maxPositions, Math.floor(maxTokenLen / 2));
    if (rows < maxTokenLen) changes.push({ change: `actor.ppoMaxTokenLenPerGpu=${rows}`, maxTokenLen: rows });
  }
  if (!sizes.dtype) changes.push({ change: 'model.dtype=float16 (with shader-f16)', dtype: 'float16' });
  const smaller = { none: ['float16', 'int8', 'int4'], float16: ['int8', 'int4'], int8: ['int4'], int4: [] } as const;
  if (lora || (use !== 'train' && sizes.rolloutWeights !== 'stream'))
    // streamed weights are trained on another device
    for (const format of smaller[sizes.weightFormat ?? 'none'])
      changes.push({ change: `model.quantization=${format}`, weightFormat: format });
  if (!rollout) return changes;
  const [slots, capacity] = [Math.ceil(rollout.maxNumSeqs / 2), Math.ceil(rollout.slotCapacity / 2)];
  for (const [key, value, now] of [
    ['rollout.maxNumSeqs', slots, rollout.maxNumSeqs],
    ['data.maxResponseLength', capacity, rollout.slotCapacity],
  ] as const)
    if (value < now) changes.push({ change: `${key}=${value}`, ...LOWERED[key](sizes, value) });
  if (sizes.adjustedDraws)
    changes.push({ change: 'no penalties, minNewTokens or constrainToolCalls in rollout', adjustedDraws: false });
  return changes;
}

/** Returns the bytes of the run's other engines. */
export const otherBytes = (items: PlanItem[]): number => items.find(({ name }) => name === OTHERS)?.bytes ?? 0;

/** Returns the sum of all lines of the plan. */
export const totalBytes = (items: PlanItem[]): number => items.reduce((sum, { bytes }) => sum + bytes, 0);

/** Returns the plan as text: one line per purpose, largest first. */
export function planLines(items: PlanItem[]): string[] {
  const lines = [...items].sort((a, b) => b.bytes - a.bytes).map(({ name, bytes }) => [name, mib(bytes)] as const);
  const [names, values] = [0, 1].map((i) => Math.max(...lines.map((line) => line[i].length)));
  return [
    `memory plan: ${mib(totalBytes(items))} on the GPU`,
    ...lines.map(([name, value]) => `  ${name.padEnd(names)}  ${value.padStart(values)}`),
  ];
}

/**
 * Returns the plan. Throws OutOfMemoryError if it exceeds the limit. The message has what each change of a setting would save, and what
 * fits.
 */
export function checkPlan(sizes: Sizes, maxBytes: number): PlanItem[] {
  const items = planMemory(sizes);
  const total = totalBytes(items);
  if (total <= maxBytes) return items;
  const lines = items.map(({ name, bytes }) => `${name} ${mib(bytes)}`).join(', ');
  const limit = sizes.maxMemoryMib === undefined ? 'the machine has' : 'model.maxMemoryMib allows';
  throw new OutOfMemoryError(
    `This run needs ${mib(total)} of GPU memory but ${limit} ${mib(maxBytes)} (${lines}). ${savingsAdvice(sizes)}${fitAdvice(sizes, maxBytes)}`,
  );
}

type LoweredKey = keyof LoweredSettings;

/** Returns the changed fields of the sizes if a setting has another value. */
const LOWERED: Record<LoweredKey, (sizes: Sizes, value: number) => Partial<Sizes>> = {
  'rollout.maxNumSeqs': ({ rollout }, maxNumSeqs) =>
    rollout ? { rollout: { ...rollout, maxNumSeqs, maxPrompts: Math.min(rollout.maxPrompts, maxNumSeqs) } } : {},
  'actor.ppoMaxTokenLenPerGpu': (_, maxTokenLen) => ({ maxTokenLen }),
  'data.maxResponseLength': ({ rollout, maxPositions }, slotCapacity) =>
    rollout
      ? { rollout: { ...rollout, slotCapacity }, maxPositions: maxPositions - rollout.slotCapacity + slotCapacity }
      : {},
};
const LOWERED_KEYS = Object.keys(LOWERED) as LoweredKey[];

/** Response length that is kept if a run does not fit. With fewer tokens few tasks can be answered. */
const LEAST_RESPONSE = 32;

/**
 * Lowers the settings in `lowerToFit` until the plan is within `maxBytes`, every buffer can be bound, and the longest sequence has a
 * position. `lowered` of the result has their values and the reasons. If no values fit, the sizes stay, and `checkPlan` or
 * `checkBindings` refuses them.
 */
export function fitted<T extends Sizes>(sizes: T, maxBytes: number): T {
  const { lowerToFit = [], maxArenaBytes = Infinity, rollout, config } = sizes;
  const free = rollout ? LOWERED_KEYS.filter((key) => lowerToFit.includes(key)) : [];
  if (free.length === 0) return sizes;
  const reasons = new Set<string>();
  const lowered: LoweredSettings = {};
  let [now, above] = [sizes, undefined as string | undefined];
  const lower = (key: LoweredKey, value: number) => {
    lowered[key] = value;
    now = changedBy(now, LOWERED[key](now, value));
  };
  const excess = now.maxPositions - config.maxPositionEmbeddings;
  if (excess > 0 && free.includes('data.maxResponseLength') && rollout!.slotCapacity > excess) {
    lower('data.maxResponseLength', rollout!.slotCapacity - excess);
    reasons.add(`the model has ${config.maxPositionEmbeddings} positions`);
  }
  for (;;) {
    const unbound = [now, ...othersOf(now)].flatMap(bindingsOf).find(({ count, each }) => count * each > maxArenaBytes);
    const total = totalBytes(planMemory(now));
    if (!unbound && total <= maxBytes) break;
    const next = nextLower(now, unbound ? free.filter((key) => key === unbound.setting) : free);
    if (!next) return sizes;
    if (unbound) reasons.add(`the device binds at most ${maxArenaBytes} bytes in one buffer`);
    else
      above ??= `the plan of ${mib(total)} is above the ${mib(maxBytes)} of ${sizes.maxMemoryMib === undefined ? 'the machine' : 'model.maxMemoryMib'}`;
    lower(...next);
  }
  if (above) reasons.add(above);
  if (reasons.size === 0) return sizes;
  const values = Object.entries(lowered).map(
    ([key, value]) => `${key}=${value} instead of ${settingOf(sizes, key as LoweredKey)}`,
  );
  const note = `${values.join(', ')}, because ${[...reasons].join(' and ')}; a value that you write is kept`;
  return { ...now, lowered: { values: lowered, note } };
}

const settingOf = ({ maxTokenLen, rollout }: Sizes, key: LoweredKey): number =>
  key === 'actor.ppoMaxTokenLenPerGpu'
    ? maxTokenLen
    : key === 'rollout.maxNumSeqs'
      ? rollout!.maxNumSeqs
      : rollout!.slotCapacity;

/**
 * Returns the setting to halve next: slots or tokens of a micro-batch, by what saves more. The response length changes results, so it is
 * lowered last.
 */
function nextLower(sizes: Sizes, free: readonly LoweredKey[]): [LoweredKey, number] | undefined {
  const total = totalBytes(planMemory(sizes));
  const least: Record<LoweredKey, number> = {
    'rollout.maxNumSeqs': 1,
    'actor.ppoMaxTokenLenPerGpu': Math.max(
      sizes.maxPositions,
      ...[sizes, ...(sizes.otherEngines ?? [])].map(({ judgePositions = 0 }) => judgePositions),
    ),
    'data.maxResponseLength': LEAST_RESPONSE,
  };
  const steps = free.flatMap((key) => {
    const now = settingOf(sizes, key);
    const value = Math.max(least[key], Math.floor(now / 2));
    if (value >= now) return [];
    return [{ key, value, saved: total - totalBytes(planMemory(changedBy(sizes, LOWERED[key](sizes, value)))) }];
  });
  const best = steps
    .filter(({ key, saved }) => saved > 0 && key !== 'data.maxResponseLength')
    .sort((a, b) => b.saved - a.saved);
  const step = best[0] ?? steps.find(({ key, saved }) => saved > 0 && key === 'data.maxResponseLength');
  return step && [step.key, step.value];
}

/** Returns a sentence with values that fit; '' if lower values of these settings do not help. */
function fitAdvice(sizes: Sizes, maxBytes: number): string {
  const { lowered }: Sizes = fitted({ ...sizes, lowerToFit: LOWERED_KEYS }, maxBytes);
  const values = Object.entries<number>(lowered?.values ?? {}).map(([key, value]) => `${key}=${value}`);
  return values.length > 0 ? ` It fits with ${values.join(' ')}.` : '';
}

/**
 * Adds possible savings to an error of the device. A page cannot query a device's memory, so without a limit this error is the first sign
 * that the memory is too small.
 */
export const withAdvice = (error: OutOfMemoryError, sizes: Sizes): OutOfMemoryError =>
  new OutOfMemoryError(`${error.message} ${savingsAdvice(sizes)}`, { cause: error });

/** Returns one sentence on what each change of a setting alone would save. */
function savingsAdvice(sizes: Sizes): string {
  const savings = planSavings(sizes).map(({ change, bytes }) => `${change} ${mib(bytes)}`);
  return savings.length > 0
    ? `Each alone would save: ${savings.join(', ')}.`
    : 'No other setting would save memory. Use a smaller model.';
}

/** A buffer that must be bound as one, with the setting that it grows with. */
interface Binding {
  name: string;
  setting: LoweredKey;
  count: number;
  /** Bytes per `count`. */
  each: number;
}

function bindingsOf({ config, dtype, maxTokenLen, rollout, use }: Sizes): Binding[] {
  const { intermediateSize: F, numKeyValueHeads: K, headDim: D, vocabSize: V } = config;
  const activation = dtype ? 2 : 4;
  const bindings: Binding[] = [];
  if (use !== 'generate')
    bindings.push({
      name: 'MLP activations of a micro-batch',
      setting: 'actor.ppoMaxTokenLenPerGpu',
      count: maxTokenLen,
      each: 2 * F * (use === 'score' ? activation : 4), // the gradients of training are float32
    });
  if (!rollout) return bindings;
  const { maxNumSeqs: count, slotCapacity, maxPrompts, maxPromptLength } = rollout;
  const setting = 'rollout.maxNumSeqs';
  const perSlot = (slotCapacity + (maxPrompts / count) * maxPromptLength) * 2 * K * D * activation;
  bindings.push({ name: 'logits of a decode step', setting, count, each: V * 4 });
  bindings.push({ name: "keys and values of a layer's cache", setting, count, each: perSlot });
  return bindings;
}

/** Throws OutOfMemoryError before any allocation if a buffer is larger than the device can bind. */
export function checkBindings(sizes: Sizes, limit: number): void {
  for (const { name, setting, count, each } of bindingsOf(sizes))
    if (count * each > limit)
      throw new OutOfMemoryError(
        `The ${name} need ${Math.ceil(count * each)} bytes in one buffer but this device binds at most ${limit}. ` +
          (each > limit
            ? 'Use a smaller model.'
            : `Lower ${setting} from ${count} to at most ${Math.floor(limit / each)}.`),
      );
}

/** Formats bytes as MiB. */
export const mib = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
