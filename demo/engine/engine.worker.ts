/** The page's engine worker, which also supports `engine: tfjs`. */

import '../../src/tfjs.ts';
import '../../src/workers/engine.worker.ts';
