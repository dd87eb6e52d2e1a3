/**
 * `webgrpo/tfjs` and the benchmark of peers use it. It adds a second engine by TensorFlow.js, which is loaded when such an engine is made.
 */

export { loadTfjs, type Tf } from './backend.ts';
export { createTfjsEngine } from './engine.ts';
export { policyGradient } from './policyGradient.ts';
