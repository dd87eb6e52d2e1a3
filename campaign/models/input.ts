/** Messages to a thread that opens models. */

/** Files of a checkpoint's folder, by name. */
export interface ModelInput {
  kind: 'checkpoint' | 'tokenizer' | 'adapter';
  files: Map<string, Uint8Array>;
}

/** config.json of the model to which adapters are applied. */
export const ADAPTED = {
  architectures: ['LlamaForCausalLM'],
  vocab_size: 32,
  hidden_size: 8,
  intermediate_size: 12,
  num_hidden_layers: 1,
  num_attention_heads: 2,
};
