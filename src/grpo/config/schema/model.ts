/** Config part `model`: the model of a run, and which of its weights are trained. */

import { PACKED_FORMATS } from '../../../gpu/packedFormat.ts';
import { LORA_MODULES } from '../../../model/lora/config.ts';
import { choice, count, flag, names, number, text, part, positive, requiredText } from '../keys.ts';

/** Keys that the memory plan can lower. */
export const LOWERED_KEYS = ['rollout.maxNumSeqs', 'actor.ppoMaxTokenLenPerGpu', 'data.maxResponseLength'] as const;

export const model = part({
  path: requiredText({
    why: 'Hugging Face checkpoint (a folder, its URL, or org/name, with @revision if needed), a .gguf file (a path, its URL, or org/name:Q4_1), or a config file for `webgrpo sft`, which is run first to produce the model.',
    verl: '=',
    trl: 'model_name_or_path',
  }),
  customChatTemplate: text(
    undefined,
    "File with a Jinja chat template that replaces the tokenizer's. Checkpoints are saved with it.",
  ),
  maxMemoryMib: count(
    undefined,
    'MiB',
    'Maximum GPU memory of all engines of a run together. Default: the memory of the machine on a software adapter, otherwise no limit, because WebGPU cannot report the free memory.',
  ),
  lowerToFit: names(undefined, [...LOWERED_KEYS, 'none'], {
    why: 'Keys that are lowered if the run does not fit the model or the device; the run reports the values. Default: those of these keys that are not written. none = refuse the run instead.',
  }),
  loraRank: count(0, '', {
    why: 'Rank of LoRA adapters to train while the weights stay frozen. 0 = train every weight.',
    min: 0,
    verl: '=',
    trl: 'lora_r',
  }),
  loraAlpha: positive(16, '', {
    why: 'Adapters are scaled by loraAlpha / loraRank, or with useRslora by loraAlpha / sqrt(loraRank).',
    verl: '=',
    trl: 'lora_alpha',
  }),
  targetModules: names(['all-linear'], [...LORA_MODULES, 'all-linear'], {
    why: "Modules with an adapter, by PEFT's names. all-linear = every linear module of the layers.",
    verl: '=',
    trl: 'lora_target_modules',
  }),
  loraDropout: number(0, [0, 0.99], 'share', {
    why: "Share of adapter inputs that training sets to 0, like PEFT's lora_dropout.",
    verl: 'actor_rollout_ref.model.lora.dropout',
    trl: 'lora_dropout',
  }),
  useRslora: flag(false, { why: 'Rank-stabilised scale (arXiv:2312.03732), for large ranks.', trl: 'use_rslora' }),
  quantization: choice(
    'none',
    ['none', ...PACKED_FORMATS],
    'Block-wise storage format of the frozen weights under adapters. Products convert the weights to float32. Only with LoRA.',
  ),
  dtype: choice('float32', ['float32', 'float16'], {
    why:
      'Type that products read and write: weights, activations, KV cache. Sums, gradients and the weights that AdamW updates ' +
      'stay float32. Without shader-f16, a run uses float32 and reports that.',
    verl: 'actor_rollout_ref.actor.fsdp_config.dtype',
    trl: 'dtype',
  }),
  loraAdapterPath: text(undefined, {
    why: 'Folder of a PEFT adapter to start from. Its rank, alpha and modules replace those of the config.',
    verl: '=',
  }),
  enableGradientCheckpointing: flag(false, {
    why: "Store only each layer's input and run layers again in backward: less memory, but slower. verl's default is true.",
    verl: '=',
    trl: 'gradient_checkpointing',
  }),
});
