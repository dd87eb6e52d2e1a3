/**
 * The package entry `webgrpo/tfjs`: a second engine, based on TensorFlow.js. The library is loaded when the first such engine is created.
 * The benchmark of peers uses it, too.
 */

export { loadTfjs, type Tf } from './backend.ts';
export { createTfjsEngine } from './engine.ts';
export { policyGradient } from './policyGradient.ts';
