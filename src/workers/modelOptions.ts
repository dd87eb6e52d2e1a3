/** How the models of an engine are kept on its device: the same when they are made and when their memory is planned. */

import { InputError } from '../errors.ts';
import type { ModelConfig } from '../model/config.ts';
import { judgeTokenLen } from '../tasks/rewards/judgePrompt.ts';
import type { ModelOptions } from '../model/llama.ts';
import { type Kept, readsPacked } from '../model/weights/plan.ts';
import type { MatrixForm } from '../model/weights/gpuWeights.ts';
import type { DeviceSpec } from './engineSpec.ts';

/** The policy. Throws InputError for fewer bits where the matrices are trained. */
export const policyOptions = (
  spec: Pick<DeviceSpec, 'config' | 'lora' | 'use' | 'weightFormat' | 'dtype' | 'packed'>,
): ModelOptions => {
  const form = matrixForm(spec);
  const isFrozen = spec.lora !== undefined || (spec.use ?? 'train') !== 'train';
  const keepsPacked = form === undefined && isFrozen && readsPacked(spec.config);
  return { lora: spec.lora, form, half: spec.dtype === 'float16', ...(keepsPacked && { stored: spec.packed }) };
};

/** A reference, or a judge, with weights of its own. */
export const referenceOptions = ({ dtype }: Pick<DeviceSpec, 'dtype'>): ModelOptions => ({
  form: frozenForm({ dtype }),
  half: dtype === 'float16',
});

function matrixForm(spec: Pick<DeviceSpec, 'lora' | 'use' | 'weightFormat' | 'dtype'>): MatrixForm | undefined {
  const { weightFormat, lora, use = 'train' } = spec;
  if (lora || use !== 'train') return frozenForm(spec);
  if (!weightFormat) return spec.dtype && 'trainedHalf';
  throw new InputError(
    `model.quantization is "${weightFormat}", which freezes the weights, but they are to be trained; set model.loraRank or leave it out.`,
  );
}

/** Where rollout is, and by which weights. Throws InputError for an engine that cannot train beside it. */
export function rolloutPlace(spec: Pick<DeviceSpec, 'use' | 'rollout' | 'rolloutWeights'> & { engine?: string }): {
  /** Rollout is on this device. */
  isHere: boolean;
  /** It draws by weights of its own. */
  hasCopy: boolean;
  /** The weights of another device's rollout are sent from here. */
  sends: boolean;
  /** Rollout's weights come from another device. */
  receives: boolean;
} {
  const { use = 'train', rollout, rolloutWeights = 'shared', engine } = spec;
  if (rolloutWeights !== 'shared' && engine === 'tfjs')
    throw new InputError(
      `Engine "tfjs" cannot train beside rollout (rolloutWeights "${rolloutWeights}"); use engine "wgsl".`,
    );
  const sends = rollout !== undefined && rolloutWeights === 'stream' && use === 'train';
  return {
    isHere: rollout !== undefined && !sends,
    hasCopy: rollout !== undefined && rolloutWeights === 'copy' && use === 'train',
    sends,
    receives: rollout !== undefined && rolloutWeights === 'stream' && use === 'generate',
  };
}

/** How matrices that are not trained are kept; undefined = as float32. */
function frozenForm({ weightFormat, dtype }: Pick<DeviceSpec, 'weightFormat' | 'dtype'>): Kept | undefined {
  return dtype && (weightFormat ?? 'float16') === 'float16' ? 'half' : weightFormat;
}

/** A judge scores and is never trained: no activations of more than one layer are kept. */
export const JUDGE_OPTIONS = { enableGradientCheckpointing: true };

type Lengths = Pick<DeviceSpec, 'judge' | 'judgePositions' | 'maxPositions' | 'config'> & { judgeModel?: object };

/** The longest sequence of all. Throws InputError if a judge's is longer than the model has positions. */
export const positionsOf = (spec: Lengths): number =>
  spec.judgeModel ? spec.maxPositions : Math.max(spec.maxPositions, judgedLength(spec, spec.config));

/**
 * A judge of its own: longest sequence, and rows of a pass in which a rubric is judged, 0 for none. Throws InputError if the
 * model has fewer positions.
 */
export function judgeLengths(spec: Lengths, config: ModelConfig): { maxPositions: number; maxTokenLen: number } {
  const { judgePositions } = spec;
  return {
    maxPositions: judgedLength(spec, config),
    maxTokenLen: judgePositions === undefined ? 0 : judgeTokenLen(judgePositions),
  };
}

/** The longest sequence that is judged; 0 = none is. */
function judgedLength({ judge, judgePositions = 0 }: Lengths, { maxPositionEmbeddings }: ModelConfig): number {
  const longest = Math.max(judgePositions, judge ? judge.maxPromptLength + judge.slotCapacity : 0);
  if (longest <= maxPositionEmbeddings) return longest;
  throw new InputError(
    `The judge's prompt and reply may have ${longest} tokens, but the model has ${maxPositionEmbeddings} positions; ` +
      'lower reward.judge.maxPromptLength.',
  );
}
