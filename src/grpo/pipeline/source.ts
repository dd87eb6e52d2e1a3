/** Creates the source of a step's samples that the config asks for. */

import { FilteredGroups } from '../generate/filterGroups.ts';
import { ReplayBuffer, ReplayedGroups } from '../generate/replayBuffer.ts';
import { type InFlight, PlainGroups, type SampleSource, type SourceOptions } from '../generate/samples.ts';
import type { StatefulParts } from '../parts.ts';
import { AsyncGroups, type RollouterFactory } from './asyncGroups.ts';
import { NothingInFlight } from './nothingInFlight.ts';
import { OverSampledGroups } from './overSampling.ts';
import { pipelineOf } from './settings.ts';

interface Given {
  /** Replaces the configured source. */
  source?: SampleSource | undefined;
  rollouter?: RollouterFactory | undefined;
}

/**
 * Creates the configured source of samples, and its parts that checkpoints store. Throws InputError if the engine does
 * not support the source.
 */
export function sampleSource(
  options: SourceOptions,
  given: Given,
): { source: SampleSource; inFlight: InFlight; parts: StatefulParts } {
  const { replayBufferSize: size } = options.config.algorithm;
  const replay = size > 0 ? new ReplayBuffer(size) : undefined;
  const own = ownSource(options, given);
  const source = replay ? new ReplayedGroups(own, options.config, replay) : own;
  return { source, inFlight: source.inFlight ?? new NothingInFlight(), parts: replay ? { replay } : {} };
}

function ownSource(options: SourceOptions, { source, rollouter }: Given): SampleSource {
  const { rollout, algorithm } = options.config;
  if (source) return source;
  if (pipelineOf(options.config).isAsync) return new AsyncGroups(options, rollouter);
  if (rollout.overSampleRate > 0) return new OverSampledGroups(options);
  return algorithm.filterGroups.enable ? new FilteredGroups(options) : new PlainGroups(options);
}
