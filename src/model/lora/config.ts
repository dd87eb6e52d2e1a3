/** Settings of LoRA adapters; free of engine code, since configs and pages read them. */

import { InputError } from '../../errors.ts';

/** Every linear module of a layer under its PEFT name: what `all-linear` means. */
export const LORA_MODULES = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'] as const;
export type LoraModule = (typeof LORA_MODULES)[number];

/** A low-rank adapter W + scale B A (Hu et al. 2021, arXiv:2106.09685): A is [R, in], B is [out, R]. */
export interface LoraConfig {
  /** R */
  rank: number;
  /** Numerator of the scale. */
  alpha: number;
  /** Share of the adapter's inputs that training sets to 0. */
  dropout: number;
  /** Scale by alpha / sqrt(R) instead of alpha / R (arXiv:2312.03732). */
  useRslora: boolean;
  /** The matrices that have one, by PEFT's names. */
  targetModules: readonly LoraModule[];
  /** Fresh A and the dropout masks follow from it. */
  seed: number;
}

export const loraScale = ({ rank, alpha, useRslora }: LoraConfig): number =>
  alpha / (useRslora ? Math.sqrt(rank) : rank);

/** `all-linear` or names -> modules in order. Throws InputError naming one that is not known. */
export function loraModules(names: string | readonly string[]): LoraModule[] {
  const wanted = typeof names === 'string' ? [names] : names;
  if (wanted.length === 1 && wanted[0] === 'all-linear') return [...LORA_MODULES];
  const unknown = wanted.find((name) => !(LORA_MODULES as readonly string[]).includes(name));
  if (unknown !== undefined || wanted.length === 0)
    throw new InputError(
      `LoRA target module ${unknown === undefined ? 'list is empty' : `"${unknown}" is unknown`}; allowed: all-linear, or some of ${LORA_MODULES.join(', ')}.`,
    );
  return LORA_MODULES.filter((name) => wanted.includes(name));
}
