/** Settings of LoRA adapters. This file has no engine code, because configs and pages import it. */

import { InputError } from '../../errors.ts';

/** Every linear module of a layer by its PEFT name, in the order of `all-linear`. */
export const LORA_MODULES = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'] as const;
export type LoraModule = (typeof LORA_MODULES)[number];

/** A low-rank adapter W + scale B A (Hu et al. 2021, arXiv:2106.09685): A is [R, in], B is [out, R]. */
export interface LoraConfig {
  /** R */
  rank: number;
  /** Numerator of the scale. */
  alpha: number;
  /** Dropout: share of an adapter's inputs that training sets to 0. */
  dropout: number;
  /** True to scale by alpha / sqrt(R) instead of alpha / R (arXiv:2312.03732). */
  useRslora: boolean;
  /** Adapted modules, by PEFT's names. */
  targetModules: readonly LoraModule[];
  /** Seed of a newly initialised A and of the dropout masks. */
  seed: number;
}

/** Returns the scale by which B A is multiplied. */
export const loraScale = ({ rank, alpha, useRslora }: LoraConfig): number =>
  alpha / (useRslora ? Math.sqrt(rank) : rank);

/**
 * Returns modules in the order of `all-linear`, for `all-linear` or a list of names. Throws InputError for an unknown
 * name.
 */
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
