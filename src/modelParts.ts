/** Provides the parts of models that are extensions. Imported by the programs that open models. */

import { ggufReader } from './model/checkpoint/open.ts';

// Loaded when used, because few models are GGUF files.
ggufReader.provide(async (files, name) => (await import('./extensions/gguf/readGguf.ts')).readGguf(files, name));
