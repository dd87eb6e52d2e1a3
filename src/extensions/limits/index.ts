/**
 * The limits of a GPU, and the dispatches of a training step, which together predict its seconds. Used by `bench/`, and by the page if a visitor
 * asks what this machine can do.
 */

export { copyGbPerS, dispatchCost, mapMs, peakGflops, peakGflopsF16 } from './peaks.ts';
export { type Effort, elapsed, secondsOf, settle } from './timing.ts';
export { countDispatches, type Dispatches } from './work.ts';
