/** `model` of a training run, as a user writes it. Printed from the schema by test/printedInputs.ts. */

export interface ModelInput {
  /** Hugging Face checkpoint: a folder, org/name (@revision), the URL of a folder; or a YAML of webgrpo sft, run first. Allowed: text. Required. */
  path: string;
  /** File of a Jinja chat template that replaces the one of the tokenizer; checkpoints are saved with it. Allowed: text. */
  customChatTemplate?: string | undefined;
  /** Cap on GPU memory; absent = none, since WebGPU cannot tell how much there is. Allowed: integer >= 1 (MiB). */
  maxMemoryMib?: number | undefined;
  /** Train LoRA adapters of this rank and keep the weights frozen; 0 = train every weight. Allowed: integer >= 0. Default: 0. */
  loraRank?: number | undefined;
  /** Adapters count loraAlpha / loraRank times (with useRslora: / sqrt(loraRank)). Allowed: > 0. Default: 16. */
  loraAlpha?: number | undefined;
  /** What gets an adapter, by PEFT's names; all-linear = every linear module of the layers. Allowed: some of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, all-linear. Default: ["all-linear"]. */
  targetModules?:
    | 'q_proj'
    | 'k_proj'
    | 'v_proj'
    | 'o_proj'
    | 'gate_proj'
    | 'up_proj'
    | 'down_proj'
    | 'all-linear'
    | ('q_proj' | 'k_proj' | 'v_proj' | 'o_proj' | 'gate_proj' | 'up_proj' | 'down_proj' | 'all-linear')[]
    | undefined;
  /** Adapter inputs set to 0 in training; PEFT's lora_dropout. Allowed: 0 to 0.99 (share). Default: 0. */
  loraDropout?: number | undefined;
  /** Rank-stabilised scale (arXiv:2312.03732), for large ranks. Allowed: true | false. Default: false. */
  useRslora?: boolean | undefined;
  /** How the frozen weights under adapters are kept, block-wise; made float32 where they are used. Only with LoRA. Allowed: none | float16 | int8 | int4. Default: "none". */
  quantization?: 'none' | 'float16' | 'int8' | 'int4' | undefined;
  /** What products read and write: weights, activations, KV cache. Sums, gradients and what AdamW updates stay float32. float16 needs shader-f16; an adapter without it goes on in float32 and says so. Allowed: float32 | float16. Default: "float32". */
  dtype?: 'float32' | 'float16' | undefined;
  /** Folder of a PEFT adapter to start from; its rank, alpha and modules hold. Allowed: text. */
  loraAdapterPath?: string | undefined;
  /** Keep only each layer's input and run layers again in backward: less memory, slower. verl has true. Allowed: true | false. Default: false. */
  enableGradientCheckpointing?: boolean | undefined;
}
