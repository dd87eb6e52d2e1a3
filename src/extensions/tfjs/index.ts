/**
 * The package entry `webgrpo/tfjs`: a second engine by TensorFlow.js. The library is loaded when such an engine is created. Also used by
 * the benchmark of peers.
 */

export { loadTfjs, type Tf } from './backend.ts';
export { createTfjsEngine } from './engine.ts';
export { policyGradient } from './policyGradient.ts';
