/**
 * Reads and writes models in llama.cpp's format. `webgrpo export --gguf` and the page's exports write them. Any `model.path` can name one:
 * `src/engineParts.ts` loads the reader.
 */

export type { GgufType } from './gguf.ts';
export { ggufModel } from './ggufModel.ts';
