/**
 * `webgrpo/tfjs`: importing it registers `engine: tfjs` in this thread. tfjs itself (`@tensorflow/tfjs`,
 * `@tensorflow/tfjs-backend-webgpu`, installed by the user) is loaded when such an engine is created.
 */

import { registerTfjs } from './workers/tfjsEngine.ts';

registerTfjs(async (gpu, model, maxTokenLen, options) => {
  const { createTfjsEngine, policyGradient } = await import('./extensions/tfjs/index.ts');
  return createTfjsEngine(gpu, model, maxTokenLen, { ...options, policyGradient });
});
