/** The model of a run and what trains of it. */

import { PACKED_FORMATS } from '../../../gpu/packedFormat.ts';
import { LORA_MODULES } from '../../../model/lora/config.ts';
import { choice, count, flag, names, number, text, part, positive, requiredText } from '../keys.ts';

export const model = part({
  path: requiredText({
    why: 'Hugging Face checkpoint: a folder, org/name (@revision), the URL of a folder; or a .gguf file; or a YAML of webgrpo sft, run first.',
    verl: '=',
    trl: 'model_name_or_path',
  }),
  customChatTemplate: text(
    undefined,
    'File of a Jinja chat template that replaces the one of the tokenizer; checkpoints are saved with it.',
  ),
  maxMemoryMib: count(
    undefined,
    'MiB',
    'Cap on GPU memory; absent = none, since WebGPU cannot tell how much there is.',
  ),
  loraRank: count(0, '', {
    why: 'Train LoRA adapters of this rank and keep the weights frozen; 0 = train every weight.',
    min: 0,
    verl: '=',
    trl: 'lora_r',
  }),
  loraAlpha: positive(16, '', {
    why: 'Adapters count loraAlpha / loraRank times (with useRslora: / sqrt(loraRank)).',
    verl: '=',
    trl: 'lora_alpha',
  }),
  targetModules: names(['all-linear'], [...LORA_MODULES, 'all-linear'], {
    why: "What gets an adapter, by PEFT's names; all-linear = every linear module of the layers.",
    verl: '=',
    trl: 'lora_target_modules',
  }),
  loraDropout: number(0, [0, 0.99], 'share', {
    why: "Adapter inputs set to 0 in training; PEFT's lora_dropout.",
    verl: 'actor_rollout_ref.model.lora.dropout',
    trl: 'lora_dropout',
  }),
  useRslora: flag(false, { why: 'Rank-stabilised scale (arXiv:2312.03732), for large ranks.', trl: 'use_rslora' }),
  quantization: choice(
    'none',
    ['none', ...PACKED_FORMATS],
    'How the frozen weights under adapters are kept, block-wise; made float32 where they are used. Only with LoRA.',
  ),
  dtype: choice('float32', ['float32', 'float16'], {
    why:
      'What products read and write: weights, activations, KV cache. Sums, gradients and what AdamW updates stay float32. ' +
      'float16 needs shader-f16; an adapter without it goes on in float32 and says so.',
    verl: 'actor_rollout_ref.actor.fsdp_config.dtype',
    trl: 'dtype',
  }),
  loraAdapterPath: text(undefined, {
    why: 'Folder of a PEFT adapter to start from; its rank, alpha and modules hold.',
    verl: '=',
  }),
  enableGradientCheckpointing: flag(false, {
    why: "Keep only each layer's input and run layers again in backward: less memory, slower. verl has true.",
    verl: '=',
    trl: 'gradient_checkpointing',
  }),
});
