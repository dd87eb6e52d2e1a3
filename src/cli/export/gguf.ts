/** `webgrpo export gguf`: writes a model as one file for llama.cpp, Ollama and LM Studio. A LoRA adapter is merged into the model first. */

import { basename, resolve } from 'node:path';
import { InputError } from '../../errors.ts';
import { collectWeights } from '../../model/checkpoint/checkpoint.ts';
import { ggufModel, type GgufType } from '../../extensions/gguf/index.ts';
import { mergeAdapter } from '../../model/lora/adapter.ts';
import { loadWithAdapter } from '../run/checkpoints.ts';
import { writeWhole } from '../files.ts';
import { say } from '../run/progress.ts';

const TYPES: Record<string, GgufType> = { float16: 'F16', q8_0: 'Q8_0', float32: 'F32' };

/** Writes the GGUF file `out`. Returns notes on what llama.cpp does differently. Throws InputError. */
export async function exportGguf(source: string, out: string, dtype: string | boolean = 'float16'): Promise<string[]> {
  if (typeof dtype !== 'string' || !Object.hasOwn(TYPES, dtype))
    throw new InputError(`--dtype is "${dtype}"; of GGUF allowed: ${Object.keys(TYPES).join(', ')}.`);
  if (!out.endsWith('.gguf')) throw new InputError(`--out is "${out}". Name one file, such as model.gguf.`);
  say(`reading ${source}`);
  const { adapter, ...model } = await loadWithAdapter(source);
  const all = model.weights instanceof Map ? model.weights : await collectWeights(model.weights);
  const weights = adapter ? mergeAdapter(model.config, all, adapter) : all;
  const name = basename(resolve(source));
  const { bytes, notes } = ggufModel({ name, type: TYPES[dtype] }, { ...model, weights });
  say(`writing ${out}`);
  await writeWhole(out, bytes);
  return notes;
}
