/** `webgrpo export --gguf` and the page's exports use it. It adds files of weights for llama.cpp. */

export type { GgufType } from './gguf.ts';
export { ggufModel } from './ggufModel.ts';
