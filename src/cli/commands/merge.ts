/** `webgrpo merge`: merges a LoRA adapter into its base model and saves the complete model in Hugging Face format. */

import { existsSync } from 'node:fs';
import { mergeAdapter } from '../../model/lora/adapter.ts';
import { collectWeights } from '../../model/checkpoint/checkpoint.ts';
import { InputError } from '../../errors.ts';
import { SAVE_DTYPE_FLAG, loadWithAdapter, readDtype, saveModel } from '../run/checkpoints.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { say } from '../run/progress.ts';

export const merge: Command = {
  summary: 'fold a LoRA adapter into its base model',
  usage: [
    'merge --model models/base --adapter runs/lora --out models/merged',
    'merge --model runs/lora --out models/merged',
    'merge --model runs/full --out models/half --dtype bfloat16',
  ],
  reads: [],
  flags: {
    ...JSON_FLAG,
    model: { value: 'PATH', help: 'the base (folder or .gguf file), or a LoRA run folder that names its base' },
    adapter: { value: 'FOLDER', help: 'PEFT folder or run folder (default: that of --model)' },
    out: { value: 'FOLDER', help: 'folder of the merged model; must not exist' },
    dtype: SAVE_DTYPE_FLAG,
  },
  async run({ flags }, io) {
    const { model: path, adapter: adapterPath, out } = flags;
    if (typeof path !== 'string') throw new InputError('--model is missing. Give --model FOLDER.');
    if (typeof out !== 'string') throw new InputError('--out is missing. Give --out FOLDER.');
    if (existsSync(out)) throw new InputError(`--out ${out} exists already. Name a new folder.`);
    const dtype = readDtype(flags['dtype']);
    say(`reading ${path}`);
    const model = await loadWithAdapter(path, typeof adapterPath === 'string' ? adapterPath : undefined);
    const { config, weights, adapter, base } = model;
    if (!adapter && flags['dtype'] === undefined)
      throw new InputError(`${path} is a full model without an adapter. Give one with --adapter FOLDER.`);
    const all = weights instanceof Map ? weights : await collectWeights(weights);
    const merged = adapter ? mergeAdapter(config, all, adapter) : all;
    say(`writing ${out}`);
    await saveModel(out, { ...model, weights: merged }, dtype);
    const rank = adapter?.lora.rank ?? 0;
    io.text(adapter ? `  ${base} with the rank ${rank} adapter merged: ${out}` : `  ${base} saved again: ${out}`);
    io.result({ model: out, base, rank });
  },
};
