/** GPU memory, planned before the first allocation; a run that cannot fit is refused with the numbers. */

import { OutOfMemoryError } from '../gpu/errors.ts';
import { activationBytesPerRow } from '../model/forward.ts';
import { planBlocks } from '../model/gpuWeights.ts';
import { headBytes } from '../model/head.ts';
import { loraWidths, planLora } from '../model/lora.ts';
import type { DeviceSpec } from './localEngine.ts';

/** One line of the plan. */
export interface PlanItem {
  name: string;
  bytes: number;
  /** What to lower to make it smaller; absent where the model alone decides. */
  setting?: string;
}

type Sizes = Pick<
  DeviceSpec,
  'config' | 'maxTokenLen' | 'maxPositions' | 'rollout' | 'withReference' | 'lora' | 'enableGradientCheckpointing'
>;

/** Bytes by purpose, for training (gradients and moments included) and rollout. Within 10% of what is then allocated. */
export function planMemory(sizes: Sizes): PlanItem[] {
  const { config, maxTokenLen, maxPositions, rollout, withReference, lora } = sizes;
  const weights = planBlocks(config).bytes;
  const adapters = lora ? planLora(config, lora).bytes : 0;
  const trained = lora ? adapters : weights;
  const items: PlanItem[] = [
    { name: 'weights', bytes: weights + maxPositions * config.headDim * 4 },
    ...(lora ? [{ name: 'adapters', bytes: adapters, setting: 'model.loraRank' }] : []),
    { name: 'gradients', bytes: trained },
    { name: 'AdamW moments', bytes: 2 * trained },
    { name: 'training activations', bytes: trainingBytes(sizes), setting: 'actor.maxTokenLen' },
  ];
  // With adapters the reference is the base with them off.
  if (withReference && !lora) {
    const bytes = weights + trainingBytes({ config, maxTokenLen });
    items.push({ name: 'reference model', bytes, setting: 'actor.useKlLoss' });
  }
  if (rollout) {
    const { maxSlots, slotCapacity, maxPrompts, maxPromptLength, maxBatchedTokens } = rollout;
    const rows = maxPrompts * maxPromptLength + maxSlots * slotCapacity;
    const cache = rows * 2 * config.numKeyValueHeads * config.headDim * 4 * config.numHiddenLayers;
    items.push({ name: 'KV cache', bytes: cache, setting: 'rollout.maxSlots' });
    const capacity = Math.max(maxBatchedTokens, maxSlots);
    const oneLayer = { ...config, numHiddenLayers: 1 };
    const bytes = capacity * activationBytesPerRow(oneLayer, { lora }) + headBytes(config, maxSlots, false, true);
    items.push({ name: 'rollout activations', bytes, setting: 'rollout.maxSlots' });
  }
  return items;
}

/** Activations, their gradients, the head and the batch's own arrays, for `maxTokenLen` rows. */
function trainingBytes(sizes: Pick<Sizes, 'config' | 'maxTokenLen' | 'lora' | 'enableGradientCheckpointing'>): number {
  const { config, maxTokenLen: rows, lora, enableGradientCheckpointing: checkpoint = false } = sizes;
  const { hiddenSize: C, intermediateSize: F, headDim: D, numAttentionHeads: H, numKeyValueHeads: K } = config;
  const dt = lora ? loraWidths(config, lora).T : 0;
  const scratch = 3 * C + 3 * F + 2 * H * D + 2 * K * D + H + (H + 2 * K) * D + dt;
  const transposed = C * Math.max((H + 2 * K) * D, 2 * F);
  const batch = 13 + 2 * 12; // arrays of u32 or f32 a row, and an entry (two entries a row are allowed for)
  return (
    rows * (activationBytesPerRow(config, { lora, checkpoint }) + (scratch + batch) * 4) +
    transposed * 4 +
    headBytes(config, rows, true)
  );
}

/** Throws OutOfMemoryError when the plan is above the cap or one buffer above the device's limit. */
export function checkPlan(items: PlanItem[], maxBytes: number): void {
  const total = items.reduce((sum, { bytes }) => sum + bytes, 0);
  if (total <= maxBytes) return;
  const lines = items.map(({ name, bytes }) => `${name} ${mib(bytes)}`).join(', ');
  const largest = items.filter(({ setting }) => setting).sort((a, b) => b.bytes - a.bytes)[0];
  throw new OutOfMemoryError(
    `This run needs ${mib(total)} of GPU memory but model.maxMemoryMib allows ${mib(maxBytes)} (${lines}); ` +
      `lower ${largest.setting}, which decides ${mib(largest.bytes)}.`,
  );
}

export const mib = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
