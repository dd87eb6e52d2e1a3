/** Converts Llama 3's scaling of the rotary frequencies. GGUF stores a divisor per frequency, config.json four numbers. */

import type { ModelConfig } from '../../model/config.ts';

/** Returns the divisors of the rotary frequencies; undefined if the config has no Llama 3 scaling. */
export function ropeFactors({
  ropeScaling,
  ropeTheta,
  headDim,
}: Pick<ModelConfig, 'ropeScaling' | 'ropeTheta' | 'headDim'>): Float32Array | undefined {
  if (ropeScaling?.ropeType !== 'llama3') return undefined;
  const { factor, lowFreqFactor = 1, highFreqFactor = 4, originalMaxPositionEmbeddings = 8192 } = ropeScaling;
  return Float32Array.from({ length: headDim / 2 }, (_, i) => {
    const wavelength = 2 * Math.PI * ropeTheta ** ((2 * i) / headDim);
    const turns = originalMaxPositionEmbeddings / wavelength;
    if (turns > highFreqFactor) return 1;
    if (turns < lowFreqFactor) return factor;
    const smooth = (turns - lowFreqFactor) / (highFreqFactor - lowFreqFactor);
    return 1 / ((1 - smooth) / factor + smooth);
  });
}

const [LOW, HIGH] = [1, 4];

/**
 * Returns the `rope_scaling` from which these divisors result, with low and high factors of 1 and 4 as in all models;
 * undefined if they result from no such scaling.
 */
export function llama3Scaling(factors: Float32Array, rope: Pick<ModelConfig, 'ropeTheta' | 'headDim'>) {
  const factor = shortest(Math.max(...factors));
  const between = factors.findIndex((value) => value > 1 && value < Math.fround(factor));
  const smooth = (1 / factors[between] - 1 / factor) / (1 - 1 / factor);
  const wavelength = 2 * Math.PI * rope.ropeTheta ** ((2 * between) / rope.headDim);
  const original = between < 0 ? 8192 : Math.round((LOW + smooth * (HIGH - LOW)) * wavelength);
  const known = { factor, lowFreqFactor: LOW, highFreqFactor: HIGH, originalMaxPositionEmbeddings: original };
  const expected = ropeFactors({ ...rope, ropeScaling: { ropeType: 'llama3', ...known } })!;
  const fits =
    factors.length === expected.length && factors.every((value, i) => Math.abs(value / expected[i] - 1) < 1e-4);
  if (!fits || !(factor > 1 && original > 0)) return undefined;
  return {
    rope_type: 'llama3',
    factor,
    low_freq_factor: LOW,
    high_freq_factor: HIGH,
    original_max_position_embeddings: original,
  };
}

/** Returns the shortest decimal that rounds to the same float32: 1e-5 for 9.999999747378752e-6. */
export function shortest(value: number): number {
  for (let digits = 1; digits < 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === Math.fround(value)) return short;
  }
  return value;
}
