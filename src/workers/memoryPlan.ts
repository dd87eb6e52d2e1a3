/** GPU memory, planned before the first allocation; a run that cannot fit is refused with the numbers. */

import { OutOfMemoryError } from '../gpu/errors.ts';
import type { ModelConfig } from '../model/config.ts';
import { activationBytesPerRow } from '../model/forward.ts';
import { planBlocks } from '../model/gpuWeights.ts';
import { headBytes } from '../model/head.ts';
import type { DeviceSpec } from './localEngine.ts';

/** One line of the plan. */
export interface PlanItem {
  name: string;
  bytes: number;
  /** What to lower to make it smaller; absent where the model alone decides. */
  setting?: string;
}

type Sizes = Pick<DeviceSpec, 'config' | 'maxTokenLen' | 'maxPositions' | 'rollout' | 'withReference'>;

/** Bytes by purpose, for training (gradients and moments included) and rollout. Within 10% of what is then allocated. */
export function planMemory({ config, maxTokenLen, maxPositions, rollout, withReference }: Sizes): PlanItem[] {
  const weights = planBlocks(config).bytes;
  const items: PlanItem[] = [
    { name: 'weights', bytes: weights + maxPositions * config.headDim * 4 },
    { name: 'gradients', bytes: weights },
    { name: 'AdamW moments', bytes: 2 * weights },
    { name: 'training activations', bytes: trainingBytes(config, maxTokenLen), setting: 'actor.maxTokenLen' },
  ];
  if (withReference) {
    const bytes = weights + trainingBytes(config, maxTokenLen);
    items.push({ name: 'reference model', bytes, setting: 'actor.useKlLoss' });
  }
  if (rollout) {
    const { maxSlots, slotCapacity, maxPrompts, maxPromptLength, maxBatchedTokens } = rollout;
    const rows = maxPrompts * maxPromptLength + maxSlots * slotCapacity;
    const cache = rows * 2 * config.numKeyValueHeads * config.headDim * 4 * config.numHiddenLayers;
    items.push({ name: 'KV cache', bytes: cache, setting: 'rollout.maxSlots' });
    const capacity = Math.max(maxBatchedTokens, maxSlots);
    const oneLayer = { ...config, numHiddenLayers: 1 };
    const bytes = capacity * activationBytesPerRow(oneLayer) + headBytes(config, maxSlots, false, true);
    items.push({ name: 'rollout activations', bytes, setting: 'rollout.maxSlots' });
  }
  return items;
}

/** Activations, their gradients, the head and the batch's own arrays, for `rows` tokens. */
function trainingBytes(config: ModelConfig, rows: number): number {
  const { hiddenSize: C, intermediateSize: F, headDim: D, numAttentionHeads: H, numKeyValueHeads: K } = config;
  const scratch = 3 * C + 3 * F + 2 * H * D + 2 * K * D + H + (H + 2 * K) * D;
  const transposed = C * Math.max((H + 2 * K) * D, 2 * F);
  const batch = 13 + 2 * 12; // arrays of u32 or f32 a row, and an entry (two entries a row are allowed for)
  return (
    rows * (activationBytesPerRow(config) + (scratch + batch) * 4) + transposed * 4 + headBytes(config, rows, true)
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
