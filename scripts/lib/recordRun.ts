/** Runs lesson 3's loop in Node, as the lesson's worker does, for scripts/record-run.mjs. */

import { readFileSync } from 'node:fs';
import { runLoop, type LoopOptions, type LoopStep } from '../../demo/lessons/kit/runLoop.ts';
import * as learners from '../../src/extensions/learner/index.ts';
import * as library from '../../src/index.ts';
import { installWebGpu, readCheckpoint } from '../../src/node.ts';
import * as tasks from '../../src/tasks/index.ts';

const text = readFileSync('demo/lessons/3-run/run.js', 'utf8');

/** Returns the steps of a run without their tries. */
export async function run(options: LoopOptions, onStep: (step: LoopStep) => void): Promise<void> {
  await installWebGpu();
  const checkpoint = await readCheckpoint('checkpoints/reverse-text');
  let engine: library.LocalEngine | undefined;
  await runLoop({
    text,
    library: { webgrpo: library, 'webgrpo/learner': learners, 'webgrpo/tasks': tasks },
    addressOf: (script) => `data:text/javascript,${encodeURIComponent(script)}`,
    openEngine: async (config) =>
      (engine = await library.createLocalEngine({ ...library.engineSizes(config), ...checkpoint })),
    options,
    onStep,
  });
  engine?.destroy();
}
