/** The engine's worker of this page, which knows `engine: tfjs` too. */

import '../../src/tfjs.ts';
import '../../src/workers/engine.worker.ts';
