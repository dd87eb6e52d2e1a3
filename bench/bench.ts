/** Types that the parts of the benchmark share. */

import type { Gpu } from '../src/gpu/device.ts';
import type { PeerName, PeerResults } from './peers/types.ts';
import type { Report } from './report.ts';
import type { StepInputs } from './step.ts';
import type { Effort } from '../src/extensions/limits/index.ts';

/** Services that the benchmark gets from its host: Node, or a page. */
export interface Host {
  /** Prints a line of progress. */
  say(line: string): void;
  /** Runs a peer (another library) in a separate process. Rejects if the peer fails or takes too long. */
  askPeer<N extends PeerName>(name: N, quick: boolean): Promise<PeerResults[N]>;
  /** Measures the cost of recording a profile. Undefined if the host cannot write files. */
  profileCost?(gpu: Gpu, quick: boolean): Promise<NonNullable<Report['profile']>>;
  loadStep(quick: boolean): Promise<StepInputs>;
  conditions: Omit<Report['conditions'], 'date' | 'quick' | 'tiles'>;
}

/** Arguments of each part of the benchmark. */
export interface Bench {
  gpu: Gpu;
  host: Host;
  report: Report;
  quick: boolean;
  effort: Effort;
  rounds: number;
}
