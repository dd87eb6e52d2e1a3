/** The worker of lesson 3's loop in `vite --mode scripted`, with an engine that needs no GPU. */

import * as library from '../../src/index.ts';
import * as learners from '../../src/extensions/learner/index.ts';
import * as tasks from '../../src/tasks.ts';
import { answerLoop } from '../../demo/lessons/kit/runLoop.ts';
import { scriptedLoopEngine } from './loopEngine.ts';

answerLoop({
  library: { webgrpo: library, 'webgrpo/learner': learners, 'webgrpo/tasks': tasks },
  openEngine: async (_, model) => scriptedLoopEngine(model),
});
