/** GPU memory, planned before the first allocation; a run that cannot fit is refused with the numbers and what to change. */

import { OutOfMemoryError } from '../errors.ts';
import { activationBytesPerRow } from '../model/forward.ts';
import { EXPORT_PIECE_BYTES } from '../model/weights/gpuWeights.ts';
import { headBytes } from '../model/head.ts';
import { LORA_MODULES, loraWidths, planLora } from '../model/lora/weights.ts';
import { halfCopy, type Kept, largestPacked, planBlocks, readsPacked } from '../model/weights/plan.ts';
import { adjustedDrawBytes } from '../rollout/decode/adjustedDraws.ts';
import type { DecoderSizes } from '../rollout/decode/decoder.ts';
import type { DeviceSpec } from './localEngine.ts';

/** One line of the plan. */
export interface PlanItem {
  name: string;
  bytes: number;
  /** What to lower to make it smaller; absent where the model alone decides. */
  setting?: string;
}

export type Sizes = Pick<
  DeviceSpec,
  | 'config'
  | 'maxTokenLen'
  | 'maxPositions'
  | 'rollout'
  | 'judge'
  | 'withReference'
  | 'lora'
  | 'enableGradientCheckpointing'
  | 'adjustedDraws'
  | 'weightFormat'
  | 'dtype'
  | 'use'
> & {
  /** What the device binds at most; absent = enough for any one tensor. */
  maxArenaBytes?: number;
};

/** Bytes by purpose, for what the engine is used for. Within 10% of what is then allocated. */
export function planMemory(sizes: Sizes): PlanItem[] {
  const { config, maxTokenLen, maxPositions, rollout, withReference, lora, dtype, use = 'train' } = sizes;
  const { maxArenaBytes } = sizes;
  const trains = use === 'train' && !lora;
  const plan = planBlocks(config, maxArenaBytes, trains ? undefined : frozenForm(sizes));
  // Packed weights arrive through room for the largest matrix, which is given back before the rest is made; where products
  // cannot read them packed, it stays.
  const room = 4 * largestPacked(plan);
  const weights = plan.bytes + (readsPacked(config) ? 0 : room);
  const adapters = lora ? planLora(config, lora).bytes : 0;
  const trained = lora ? adapters : weights;
  const items: PlanItem[] = [
    { name: 'weights', bytes: weights + maxPositions * config.headDim * 4 },
    ...(trains && dtype
      ? [{ name: 'weights in float16', bytes: halfCopy(plan, maxArenaBytes).bytes, setting: 'model.dtype' }]
      : []),
    ...(lora ? [{ name: 'adapters', bytes: adapters, setting: 'model.loraRank' }] : []),
  ];
  if (use === 'train')
    items.push(
      { name: 'gradients', bytes: trained, ...(!lora && { setting: 'model.loraRank' }) },
      { name: 'AdamW moments', bytes: 2 * trained, ...(!lora && { setting: 'model.loraRank' }) },
    );
  if (use !== 'generate') {
    const name = use === 'train' ? 'training activations' : 'activations';
    items.push({ name, bytes: trainingBytes(sizes), setting: 'actor.maxTokenLen' });
  }
  // With adapters the reference is the base with them off.
  if (withReference && !lora) {
    const bytes =
      planBlocks(config, maxArenaBytes, frozenForm({ dtype })).bytes +
      trainingBytes({ config, maxTokenLen, dtype, ...(maxArenaBytes !== undefined && { maxArenaBytes }) });
    items.push({ name: 'reference model', bytes, setting: 'actor.useKlLoss' });
  }
  if (rollout) {
    const { maxSlots, slotCapacity } = rollout;
    const { cache, activations } = rolloutBytes(sizes, rollout, lora);
    items.push({ name: 'KV cache', bytes: cache, setting: 'rollout.maxSlots' });
    items.push({ name: 'rollout activations', bytes: activations, setting: 'rollout.maxSlots' });
    if (sizes.adjustedDraws) {
      const drawBytes = adjustedDrawBytes(maxSlots, config.vocabSize, slotCapacity);
      items.push({ name: 'penalties', bytes: drawBytes, setting: 'rollout.maxSlots' });
    }
  }
  if (sizes.judge) {
    const { cache, activations } = rolloutBytes(sizes, sizes.judge);
    items.push({ name: 'judge', bytes: cache + activations, setting: 'reward.judge.maxSlots' });
  }
  const staging = use === 'train' ? stagingBytes(Math.min(trained, EXPORT_PIECE_BYTES)) : 4096;
  const afterLoading = totalBytes(items) - weights - adapters;
  items.push({ name: 'staging', bytes: Math.max(staging, readsPacked(config) ? room - afterLoading : 0) });
  return items;
}

/** How matrices that are not trained are kept; undefined = as float32. */
export function frozenForm({ weightFormat, dtype }: Pick<Sizes, 'weightFormat' | 'dtype'>): Kept | undefined {
  return dtype && (weightFormat ?? 'float16') === 'float16' ? 'half' : weightFormat;
}

function rolloutBytes({ config, dtype, maxArenaBytes, ...sizes }: Sizes, decoder: DecoderSizes, lora?: Sizes['lora']) {
  const { maxSlots, slotCapacity, maxPrompts, maxPromptLength, maxBatchedTokens, verifyRows = 0 } = decoder;
  const rows = maxPrompts * maxPromptLength + maxSlots * slotCapacity;
  const headRows = Math.max(maxSlots, verifyRows);
  const [half, format] = [dtype === 'float16', frozenForm({ dtype, ...sizes })];
  const perRow = activationBytesPerRow({ ...config, numHiddenLayers: 1 }, { lora, half });
  return {
    cache: rows * 2 * config.numKeyValueHeads * config.headDim * (half ? 2 : 4) * config.numHiddenLayers,
    activations:
      Math.max(maxBatchedTokens, headRows) * perRow +
      headBytes(config, headRows, { oneChunk: true, half, format, maxArenaBytes }),
  };
}

/** A read-back buffer is a power of two; the largest read is a piece of the trained weights, for a checkpoint. */
const stagingBytes = (read: number): number => 2 ** Math.ceil(Math.log2(Math.max(4096, read)));

type TrainingSizes = Pick<
  Sizes,
  'config' | 'maxTokenLen' | 'lora' | 'enableGradientCheckpointing' | 'weightFormat' | 'dtype' | 'maxArenaBytes'
>;

/** Activations, their gradients, the head and the batch's own arrays, for `maxTokenLen` rows. */
function trainingBytes(sizes: TrainingSizes): number {
  const { config, maxTokenLen: rows, lora, maxArenaBytes } = sizes;
  const { enableGradientCheckpointing: checkpoint = false } = sizes;
  const [half, format] = [sizes.dtype === 'float16', frozenForm(sizes)];
  const { hiddenSize: C, intermediateSize: F, headDim: D, numAttentionHeads: H, numKeyValueHeads: K } = config;
  const dt = lora ? loraWidths(config, lora).T : 0;
  const scratch = 3 * C + 3 * F + 2 * H * D + 2 * K * D + H + (H + 2 * K) * D + dt;
  const transposed = format && format !== 'half' && readsPacked(config) ? 0 : C * Math.max((H + 2 * K) * D, 2 * F);
  const batch = 13 + 2 * 12; // arrays of u32 or f32 a row, and an entry (two entries a row are allowed for)
  return (
    rows * (activationBytesPerRow(config, { lora, half, checkpoint }) + (scratch + batch) * 4) +
    transposed * (format === 'half' ? 2 : 4) +
    headBytes(config, rows, { forTraining: true, half, format, maxArenaBytes })
  );
}

/** A change of one setting and the bytes it would save. */
export interface Saving {
  change: string;
  bytes: number;
}

/** What each change alone would save, largest first. */
export function planSavings(sizes: Sizes): Saving[] {
  const total = totalBytes(planMemory(sizes));
  return changesOf(sizes)
    .map(({ change, ...changed }) => ({ change, bytes: total - totalBytes(planMemory({ ...sizes, ...changed })) }))
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
    if (sizes.withReference && !lora) changes.push({ change: 'actor.useKlLoss=false', withReference: false });
    const rows = Math.max(maxPositions, Math.floor(maxTokenLen / 2));
    if (rows < maxTokenLen) changes.push({ change: `actor.maxTokenLen=${rows}`, maxTokenLen: rows });
  }
  if (!sizes.dtype) changes.push({ change: 'model.dtype=float16 (with shader-f16)', dtype: 'float16' });
  const smaller = { none: ['float16', 'int8', 'int4'], float16: ['int8', 'int4'], int8: ['int4'], int4: [] } as const;
  if (lora || use !== 'train')
    for (const format of smaller[sizes.weightFormat ?? 'none'])
      changes.push({ change: `model.quantization=${format}`, weightFormat: format });
  if (!rollout) return changes;
  const [slots, capacity] = [Math.ceil(rollout.maxSlots / 2), Math.ceil(rollout.slotCapacity / 2)];
  const fewer = { ...rollout, maxSlots: slots, maxPrompts: Math.min(rollout.maxPrompts, slots) };
  if (slots < rollout.maxSlots) changes.push({ change: `rollout.maxSlots=${slots}`, rollout: fewer });
  if (capacity < rollout.slotCapacity) {
    const shorter = { ...rollout, slotCapacity: capacity };
    const positions = maxPositions - (rollout.slotCapacity - capacity);
    changes.push({ change: `data.maxResponseLength=${capacity}`, rollout: shorter, maxPositions: positions });
  }
  if (sizes.adjustedDraws)
    changes.push({ change: 'no penalties, minNewTokens or constrainToolCalls in rollout', adjustedDraws: false });
  return changes;
}

export const totalBytes = (items: PlanItem[]): number => items.reduce((sum, { bytes }) => sum + bytes, 0);

/** The plan for people: a line an item, largest first. */
export function planLines(items: PlanItem[]): string[] {
  const lines = [...items].sort((a, b) => b.bytes - a.bytes).map(({ name, bytes }) => [name, mib(bytes)] as const);
  const [names, values] = [0, 1].map((i) => Math.max(...lines.map((line) => line[i].length)));
  return [
    `memory plan: ${mib(totalBytes(items))} on the GPU`,
    ...lines.map(([name, value]) => `  ${name.padEnd(names)}  ${value.padStart(values)}`),
  ];
}

/** Throws OutOfMemoryError when the plan is above the cap, with what each change would save. */
export function checkPlan(sizes: Sizes, maxBytes: number): void {
  const items = planMemory(sizes);
  const total = totalBytes(items);
  if (total <= maxBytes) return;
  const lines = items.map(({ name, bytes }) => `${name} ${mib(bytes)}`).join(', ');
  throw new OutOfMemoryError(
    `This run needs ${mib(total)} of GPU memory but model.maxMemoryMib allows ${mib(maxBytes)} (${lines}). ${advice(sizes)}`,
  );
}

/** One sentence: which changes save how much, each alone. */
export function advice(sizes: Sizes): string {
  const savings = planSavings(sizes).map(({ change, bytes }) => `${change} ${mib(bytes)}`);
  return savings.length > 0
    ? `Each alone would save: ${savings.join(', ')}.`
    : 'No setting would save any; take a smaller model.';
}

/** Throws OutOfMemoryError for a buffer that the device cannot bind as a whole, before anything is allocated. */
export function checkBindings({ config, maxTokenLen, rollout, use }: Sizes, limit: number): void {
  const { intermediateSize: F, numKeyValueHeads: K, headDim: D, vocabSize: V } = config;
  const check = (name: string, setting: string, count: number, each: number) => {
    if (count * each <= limit) return;
    throw new OutOfMemoryError(
      `The ${name} need ${count * each} bytes in one buffer but this device binds at most ${limit}; lower ${setting} ` +
        `from ${count} to at most ${Math.floor(limit / each)}.`,
    );
  };
  if (use !== 'generate') check('MLP activations of a micro-batch', 'actor.maxTokenLen', maxTokenLen, 2 * F * 4);
  if (!rollout) return;
  const { maxSlots, slotCapacity, maxPromptLength } = rollout;
  check('logits of a decode step', 'rollout.maxSlots', maxSlots, V * 4);
  check(
    "keys and values of a layer's cache",
    'rollout.maxSlots',
    maxSlots,
    (slotCapacity + maxPromptLength) * 2 * K * D * 4,
  );
}

export const mib = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
