/** The page's engine worker, which also supports `engine: tfjs`. */

import '../../src/tfjs.ts';
import '../../src/engine.worker.ts';
