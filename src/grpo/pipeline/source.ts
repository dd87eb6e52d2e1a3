/** Which source a step's samples come from. */

import { FilteredGroups } from '../generate/filterGroups.ts';
import { type ReplayBuffer, ReplayedGroups } from '../generate/replayBuffer.ts';
import { PlainGroups, type SampleSource, type SourceOptions } from '../generate/samples.ts';
import { AsyncGroups, type MakeRollouter } from './asyncGroups.ts';
import { OverSampledGroups } from './overSampling.ts';

interface Given {
  /** Replaces the one that the config asks for. */
  source?: SampleSource | undefined;
  replay?: ReplayBuffer | undefined;
  rollouter?: MakeRollouter | undefined;
}

/** The one that the config asks for. Throws InputError if the engine is not made for it. */
export function sampleSource(options: SourceOptions, { source: given, replay, rollouter }: Given): SampleSource {
  const { rollout, algorithm, trainer } = options.config;
  if (trainer.pipeline !== 'on-policy') return given ?? new AsyncGroups(options, rollouter);
  const Source =
    rollout.overSampleRate > 0 ? OverSampledGroups : algorithm.filterGroups.enable ? FilteredGroups : PlainGroups;
  const source = given ?? new Source(options);
  return replay ? new ReplayedGroups(source, options.config, replay) : source;
}
