/** The model of a run and what trains of it. */

import { PACKED_FORMATS } from '../../../gpu/packedFormat.ts';
import { LORA_MODULES } from '../../../model/lora/config.ts';
import { choice, count, flag, names, number, text, part, positive, requiredText } from '../keys.ts';

export const model = part({
  path: requiredText(
    'Hugging Face checkpoint: a folder, org/name (@revision), the URL of a folder; or a YAML of webgrpo sft, run first.',
  ),
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
  }),
  loraAlpha: positive(16, '', 'Adapters count loraAlpha / loraRank times (with useRslora: / sqrt(loraRank)).'),
  targetModules: names(
    ['all-linear'],
    [...LORA_MODULES, 'all-linear'],
    "What gets an adapter, by PEFT's names; all-linear = every linear module of the layers.",
  ),
  loraDropout: number(0, [0, 0.99], 'share', "Adapter inputs set to 0 in training; PEFT's lora_dropout."),
  useRslora: flag(false, 'Rank-stabilised scale (arXiv:2312.03732), for large ranks.'),
  quantization: choice(
    'none',
    ['none', ...PACKED_FORMATS],
    'How the frozen weights under adapters are kept, block-wise; made float32 where they are used. Only with LoRA.',
  ),
  dtype: choice(
    'float32',
    ['float32', 'float16'],
    'What products read and write: weights, activations, KV cache. Sums, gradients and what AdamW updates stay float32. ' +
      'float16 needs shader-f16; an adapter without it goes on in float32 and says so.',
  ),
  loraAdapterPath: text(undefined, 'Folder of a PEFT adapter to start from; its rank, alpha and modules hold.'),
  enableGradientCheckpointing: flag(
    false,
    "Keep only each layer's input and run layers again in backward: less memory, slower. verl has true.",
  ),
});
