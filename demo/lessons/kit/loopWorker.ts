/**
 * Worker that runs a reader's loop: opens an engine with the model that the page sent, and reports every step. To stop the loop, the page
 * ends the worker.
 */

import * as library from '../../../src/index.ts';
import * as learners from '../../../src/extensions/learner/index.ts';
import * as tasks from '../../../src/tasks.ts';
import type { CheckpointWithTokenizer } from '../../../src/model/checkpoint/checkpoint.ts';
import { createLocalEngine, engineSizes } from '../../../src/workers/localEngine.ts';
import { answerLoop } from './runLoop.ts';

answerLoop({
  library: { webgrpo: library, 'webgrpo/learner': learners, 'webgrpo/tasks': tasks },
  openEngine: (config, model: CheckpointWithTokenizer) => createLocalEngine({ ...engineSizes(config), ...model }),
});
