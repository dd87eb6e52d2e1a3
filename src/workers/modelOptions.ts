/** How the models of an engine are kept on its device: the same when they are made and when their memory is planned. */

import { InputError } from '../errors.ts';
import type { ModelOptions } from '../model/llama.ts';
import type { Kept } from '../model/weights/plan.ts';
import type { MatrixForm } from '../model/weights/gpuWeights.ts';
import type { DeviceSpec } from './engineSpec.ts';

/** The policy. Throws InputError for fewer bits where the matrices are trained. */
export const policyOptions = (spec: Pick<DeviceSpec, 'lora' | 'use' | 'weightFormat' | 'dtype'>): ModelOptions => ({
  lora: spec.lora,
  form: matrixForm(spec),
  half: spec.dtype === 'float16',
});

/** A reference with weights of its own. */
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

/** How matrices that are not trained are kept; undefined = as float32. */
function frozenForm({ weightFormat, dtype }: Pick<DeviceSpec, 'weightFormat' | 'dtype'>): Kept | undefined {
  return dtype && (weightFormat ?? 'float16') === 'float16' ? 'half' : weightFormat;
}

/** The longest sequence of all. Throws InputError where a judge's is longer than the model has positions. */
export function positionsOf(spec: Pick<DeviceSpec, 'judge' | 'maxPositions' | 'config'>): number {
  const { judge, maxPositions } = spec;
  const { maxPositionEmbeddings } = spec.config;
  if (!judge) return maxPositions;
  const longest = judge.maxPromptLength + judge.slotCapacity;
  if (longest <= maxPositionEmbeddings) return Math.max(maxPositions, longest);
  throw new InputError(
    `The judge's prompt and reply may have ${longest} tokens, but the model has ${maxPositionEmbeddings} positions; ` +
      'lower reward.judge.maxPromptLength.',
  );
}
