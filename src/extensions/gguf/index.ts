/** Exports models to GGUF for llama.cpp. Used by `webgrpo export gguf` and the page's exports. */

export type { GgufType } from './gguf.ts';
export { ggufModel } from './ggufModel.ts';
