/** Provides the parts of engines and checkpoints that are extensions. Imported by the programs that open models: see layers.test.ts. */

import { ggufReader } from './model/checkpoint/open.ts';

// Loaded when used, because few models are GGUF files.
ggufReader.provide(async (files, name) => (await import('./extensions/gguf/readGguf.ts')).readGguf(files, name));
