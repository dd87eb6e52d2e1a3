/**
 * `webgrpo/tfjs`: importing this entry registers the engine "tfjs" in this thread. The user installs `@tensorflow/tfjs` and
 * `@tensorflow/tfjs-backend-webgpu`, which are loaded when such an engine is created.
 */

import { registerTfjs } from './workers/tfjsEngine.ts';

registerTfjs(async (gpu, model, maxTokenLen, options) => {
  const { createTfjsEngine, policyGradient } = await import('./extensions/tfjs/index.ts');
  return createTfjsEngine(gpu, model, maxTokenLen, { ...options, policyGradient });
});
