/** Creates the source of a step's samples that the config asks for. */

import { extensionPoint } from '../../extensionPoint.ts';
import type { TrainConfig } from '../config/types.ts';
import { FilteredGroups } from '../generate/filterGroups.ts';
import { type InFlight, PlainGroups, type SampleSource, type SourceOptions } from '../generate/samples.ts';
import type { StatefulParts } from '../parts.ts';
import { NothingInFlight } from './nothingInFlight.ts';
import { pipelineOf } from './settings.ts';
import type { PutRecords, Rollouter } from './types.ts';

/** Creates the rollouter, which delivers its records through `put`. */
export type RollouterFactory = (source: SourceOptions, put: PutRecords) => Rollouter;

interface Given {
  /** Replaces the configured source. */
  source?: SampleSource | undefined;
  rollouter?: RollouterFactory | undefined;
}

/** Sources that keep groups between steps. */
interface PipelineSources {
  /** Source of one-step-off and fully-async. Throws InputError if the engine lacks the copy of the weights that the pipeline needs. */
  async(options: SourceOptions, rollouter: RollouterFactory | undefined): SampleSource;
  /** Source for `rollout.overSampleRate`. */
  overSampled(options: SourceOptions): SampleSource;
  /** Adds stored groups to those of a source, for `algorithm.replayBufferSize`. `parts` is what checkpoints store. */
  replayed(own: SampleSource, config: TrainConfig): { source: SampleSource; parts: StatefulParts };
}

export const pipelineSources = extensionPoint<PipelineSources>('Asynchronous pipelines, over-sampling and replay');

/**
 * Creates the configured source of samples, and its parts that checkpoints store. Throws InputError if the engine does
 * not support the source.
 */
export function sampleSource(
  options: SourceOptions,
  given: Given,
): { source: SampleSource; inFlight: InFlight; parts: StatefulParts } {
  const own = { source: ownSource(options, given), parts: {} };
  const replays = options.config.algorithm.replayBufferSize > 0;
  const { source, parts } = replays ? pipelineSources.get().replayed(own.source, options.config) : own;
  return { source, inFlight: source.inFlight ?? new NothingInFlight(), parts };
}

function ownSource(options: SourceOptions, { source, rollouter }: Given): SampleSource {
  const { rollout, algorithm } = options.config;
  if (source) return source;
  if (pipelineOf(options.config).isAsync) return pipelineSources.get().async(options, rollouter);
  if (rollout.overSampleRate > 0) return pipelineSources.get().overSampled(options);
  return algorithm.filterGroups.enable ? new FilteredGroups(options) : new PlainGroups(options);
}
