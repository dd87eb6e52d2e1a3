/**
 * Computes how long a recorded run would take with another pipeline, on other devices or in a room. Used by `webgrpo simulate` and by the
 * benchmark that compares its predictions with measurements.
 */

export { runWorkload } from './runWorkload.ts';
export { roomSetupOf, setupOf } from './setups.ts';
export { type Simulated, type SimulatedStep, simulate } from './simulate.ts';
export type { Workload } from './workload.ts';
