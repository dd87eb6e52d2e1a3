/** What the parts of the rollout server share: who waits, who runs, what the cache holds, and what is counted. */

import type { Decoder } from '../decode/decoder.ts';
import type { Job, Running } from './job.ts';
import { SlotTable } from './kvCache.ts';
import { Pace } from './pace.ts';
import type { Speculation } from '../speculative/speculation.ts';
import type { RolloutStats } from '../types.ts';

/** What the scheduler drives; a test may put a model of it in place of the GPU. */
export type SlotDecoder = Pick<
  Decoder,
  | 'sizes'
  | 'vocabSize'
  | 'isSoftware'
  | 'ownStart'
  | 'prefixStart'
  | 'weightsChanged'
  | 'setSlot'
  | 'prefill'
  | 'verify'
  | 'setMask'
  | 'setLive'
  | 'decodeStep'
  | 'submit'
  | 'readState'
  | 'readDrawn'
>;

/**
 * Who loses its slot while another waits for one, latest arrived first. 'parked': samples between two turns, whose tool
 * takes long. 'latest': also a running sample, for one that arrived before it. 'off': nobody.
 */
export type Preemption = 'off' | 'parked' | 'latest';

/**
 * Whether a pass is launched before the last one has been looked at, so that the device never waits for the host. What has
 * ended then computes one pass for nothing and is answered one pass later. 'auto': where that costs less than the wait.
 */
export type AsyncScheduling = 'auto' | 'on' | 'off';

export interface Schedule {
  readonly decoder: SlotDecoder;
  readonly preemption: Preemption;
  readonly asyncScheduling: AsyncScheduling;
  readonly speculation: Speculation | undefined;
  readonly table: SlotTable;
  /** Number of every sample from its first request to its release, in order of arrival. */
  readonly arrivals: Map<string, number>;
  readonly jobs: Map<string, Job>;
  /** By arrival. */
  waiting: Job[];
  readonly running: Set<Running>;
  readonly pace: Pace;
  stats: RolloutStats;
  firstDraws: number;
  passes: number;
  /** Passes launched and not yet looked at. */
  inTheAir: number;
  /** When the last pass came back (performance.now), and whether no sequence had ended in it. */
  landed: { at: number; nothingEnded: boolean } | undefined;
  /** Times the weights have changed. */
  version: number;
}

export function newSchedule(
  decoder: SlotDecoder,
  options: Pick<Schedule, 'preemption' | 'asyncScheduling' | 'speculation'>,
): Schedule {
  return {
    ...{ decoder, ...options, table: new SlotTable(decoder.sizes), pace: new Pace() },
    ...{ arrivals: new Map<string, number>(), jobs: new Map<string, Job>(), running: new Set<Running>() },
    ...{ waiting: [], stats: emptyStats(), firstDraws: 0, passes: 0, inTheAir: 0, landed: undefined, version: 0 },
  };
}

/** Counters since the last call. */
export function takeStats(s: Schedule): RolloutStats {
  const stats = { ...s.stats, wastedRows: s.stats.liveRows - (s.stats.generatedTokens - s.firstDraws) };
  s.stats = emptyStats();
  s.firstDraws = 0;
  return stats;
}

function emptyStats(): RolloutStats {
  const tokens = { generatedTokens: 0, prefillTokens: 0, cachedTokens: 0 };
  const guesses = { draftTokens: 0, acceptedTokens: 0, verifications: 0 };
  return { ...tokens, ...guesses, decodeSteps: 0, wastedRows: 0, liveRows: 0, preemptions: 0 };
}
