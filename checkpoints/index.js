/** `webgrpo/checkpoints`: the URLs of the shipped checkpoints' files, by name, for `fetchCheckpoint`. */

export const gsm8kTool = {
  'config.json': new URL('./gsm8k-tool/config.json', import.meta.url),
  'model.safetensors': new URL('./gsm8k-tool/model.safetensors', import.meta.url),
  'tokenizer.json': new URL('./gsm8k-tool/tokenizer.json', import.meta.url),
  'tokenizer_config.json': new URL('./gsm8k-tool/tokenizer_config.json', import.meta.url),
};

export const reverseText = {
  'config.json': new URL('./reverse-text/config.json', import.meta.url),
  'model.safetensors': new URL('./reverse-text/model.safetensors', import.meta.url),
  'tokenizer.json': new URL('./reverse-text/tokenizer.json', import.meta.url),
  'tokenizer_config.json': new URL('./reverse-text/tokenizer_config.json', import.meta.url),
};
