/**
 * Stores the samples of steps in a run folder, and computes other losses and rewards on them. Used by `webgrpo train` with
 * `trainer.keepRollouts` and by `webgrpo replay`.
 */

export { compareLosses, type LossComparison, type NamedConfig } from './compareLosses.ts';
export { forget, keepStep, keptSteps, readKept } from './keptRollouts.ts';
export { type KeptStep, settingsHash } from './keptStep.ts';
export { rescore, type RescoredStep } from './rescore.ts';
