/**
 * `webgrpo simulate` and the benchmark of its predictions use it. It computes how long a recorded run would take with another pipeline, on
 * other devices or in a room.
 */

export { runWorkload } from './runWorkload.ts';
export { roomSetupOf, setupOf } from './setups.ts';
export { type Simulated, type SimulatedStep, simulate } from './simulate.ts';
export type { Workload } from './workload.ts';
