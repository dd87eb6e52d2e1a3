/** Options on how an engine stores its models. Used when the models are created, and by the memory plan. */

import { InputError } from '../errors.ts';
import type { ModelConfig } from '../model/config.ts';
import { judgeTokenLen } from '../tasks/rewards/judgePrompt.ts';
import type { ModelOptions } from '../model/llama.ts';
import { type Kept, readsPacked } from '../model/weights/plan.ts';
import type { MatrixForm } from '../model/weights/gpuWeights.ts';
import type { DeviceSpec } from './engineSpec.ts';

/** Returns the options of the policy. Throws InputError for a packed format if the matrices are trained. */
export const policyOptions = (
  spec: Pick<DeviceSpec, 'config' | 'lora' | 'use' | 'weightFormat' | 'dtype' | 'packed'>,
): ModelOptions => {
  const form = matrixForm(spec);
  const isFrozen = spec.lora !== undefined || (spec.use ?? 'train') !== 'train';
  const keepsPacked = form === undefined && isFrozen && readsPacked(spec.config);
  return { lora: spec.lora, form, half: spec.dtype === 'float16', ...(keepsPacked && { stored: spec.packed }) };
};

/** Returns the options of a reference, or of a judge with its own weights. */
export const referenceOptions = ({ dtype }: Pick<DeviceSpec, 'dtype'>): ModelOptions => ({
  form: frozenForm({ dtype }),
  half: dtype === 'float16',
});

function matrixForm(spec: Pick<DeviceSpec, 'lora' | 'use' | 'weightFormat' | 'dtype'>): MatrixForm | undefined {
  const { weightFormat, lora, use = 'train' } = spec;
  if (lora || use !== 'train') return frozenForm(spec);
  if (!weightFormat) return spec.dtype && 'trainedHalf';
  throw new InputError(
    `model.quantization is "${weightFormat}", which freezes the weights, but they are to be trained. Set model.loraRank to train an adapter, or remove model.quantization.`,
  );
}

/** Returns where rollout runs and where its weights come from. Throws InputError for an engine that cannot train in this arrangement. */
export function rolloutPlace(spec: Pick<DeviceSpec, 'use' | 'rollout' | 'rolloutWeights'> & { engine?: string }): {
  /** True if rollout is on this device. */
  isHere: boolean;
  /** True if rollout samples from a copy of the weights. */
  hasCopy: boolean;
  /** True if this device sends weights to another device's rollout. */
  sends: boolean;
  /** True if rollout's weights arrive from another device. */
  receives: boolean;
} {
  const { use = 'train', rollout, rolloutWeights = 'shared', engine } = spec;
  if (rolloutWeights !== 'shared' && engine === 'tfjs')
    throw new InputError(
      `Engine "tfjs" cannot train beside rollout (rolloutWeights "${rolloutWeights}"). Use engine "wgsl".`,
    );
  const sends = rollout !== undefined && rolloutWeights === 'stream' && use === 'train';
  return {
    isHere: rollout !== undefined && !sends,
    hasCopy: rollout !== undefined && rolloutWeights === 'copy' && use === 'train',
    sends,
    receives: rollout !== undefined && rolloutWeights === 'stream' && use === 'generate',
  };
}

/** Returns the storage form of matrices that are not trained. Undefined = float32. */
function frozenForm({ weightFormat, dtype }: Pick<DeviceSpec, 'weightFormat' | 'dtype'>): Kept | undefined {
  return dtype && (weightFormat ?? 'float16') === 'float16' ? 'half' : weightFormat;
}

/** A judge is never trained, so only the activations of one layer are stored. */
export const JUDGE_OPTIONS = { enableGradientCheckpointing: true };

type Lengths = Pick<DeviceSpec, 'judge' | 'judgePositions' | 'maxPositions' | 'config'> & { judgeModel?: object };

/**
 * Returns the length of the longest sequence in training, rollout and judging. Throws InputError if a judge's sequence needs more positions
 * than the model has.
 */
export const positionsOf = (spec: Lengths): number =>
  spec.judgeModel ? spec.maxPositions : Math.max(spec.maxPositions, judgedLength(spec, spec.config));

/** Throws InputError if sequences in training and rollout may have more tokens than the model has positions. */
export function checkPositions({ maxPositions, config: { maxPositionEmbeddings } }: Lengths): void {
  if (maxPositions <= maxPositionEmbeddings) return;
  throw new InputError(
    `Sequences may have ${maxPositions} tokens, but the model has ${maxPositionEmbeddings} positions. Lower data.maxPromptLength or ` +
      'data.maxResponseLength.',
  );
}

/**
 * Returns the lengths of a judge with its own weights: of its longest sequence, and of a pass that judges a rubric (0 without a rubric).
 * Throws InputError if the model has fewer positions.
 */
export function judgeLengths(spec: Lengths, config: ModelConfig): { maxPositions: number; maxTokenLen: number } {
  const { judgePositions } = spec;
  return {
    maxPositions: judgedLength(spec, config),
    maxTokenLen: judgePositions === undefined ? 0 : judgeTokenLen(judgePositions),
  };
}

/** Returns the length of the longest sequence to be judged; 0 without a judge. */
function judgedLength({ judge, judgePositions = 0 }: Lengths, { maxPositionEmbeddings }: ModelConfig): number {
  const longest = Math.max(judgePositions, judge ? judge.maxPromptLength + judge.slotCapacity : 0);
  if (longest <= maxPositionEmbeddings) return longest;
  throw new InputError(
    `The judge's prompt and reply may have ${longest} tokens, but the model has ${maxPositionEmbeddings} positions. ` +
      'Lower reward.judge.maxPromptLength.',
  );
}
