/**
 * `webgrpo train` with `trainer.keepRollouts` and `webgrpo replay` use it. It stores the samples of a step in a run's folder, and computes
 * other losses and rewards from them.
 */

export { compareLosses, type LossComparison, type NamedConfig } from './compareLosses.ts';
export { forget, keepStep, keptSteps, readKept } from './keptRollouts.ts';
export { type KeptStep, settingsHash } from './keptStep.ts';
export { rescore, type RescoredStep } from './rescore.ts';
