/** Provides the parts of a trainer that are extensions. Imported by the programs that train: see layers.test.ts. */

import { AsyncGroups } from './extensions/pipelines/asyncGroups.ts';
import { OverSampledGroups } from './extensions/pipelines/overSampling.ts';
import { ReplayBuffer, ReplayedGroups } from './extensions/pipelines/replayBuffer.ts';
import { pipelineSources } from './grpo/pipeline/source.ts';
import { modelRewards } from './grpo/generate/scoredTask.ts';

pipelineSources.provide({
  async: (options, rollouter) => new AsyncGroups(options, rollouter),
  overSampled: (options) => new OverSampledGroups(options),
  replayed(own, config) {
    const replay = new ReplayBuffer(config.algorithm.replayBufferSize);
    return { source: new ReplayedGroups(own, config, replay), parts: { replay } };
  },
});

// Loaded when used, because few runs have reward models.
modelRewards.provide(async (...args) =>
  (await import('./extensions/rewards/modelRewards.ts')).withModelRewards(...args),
);
