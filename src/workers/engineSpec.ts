/** What an engine is made from, and its sizes; free of engine code, so that a page can ask for one without loading it. */

import type { TrainConfig } from '../grpo/config.ts';
import type { ModelConfig } from '../model/config.ts';
import type { Weights } from '../model/loadModel.ts';
import type { DecoderSizes } from '../rollout/decoder.ts';

/** What an engine is made from; plain data, so that it can cross to a worker. */
export interface EngineSpec {
  engine: 'wgsl' | 'tfjs';
  config: ModelConfig;
  /** A source that is read piece by piece cannot cross to a worker; a map can. */
  weights: Weights;
  tokenizerJson: unknown;
  tokenizerConfigJson: unknown;
  /** Rows of the largest micro-batch. */
  maxTokenLen: number;
  /** Longest sequence, prompt and response. */
  maxPositions: number;
  /** Absent = no rollout (supervised training). */
  rollout?: DecoderSizes;
  /** Keep a frozen copy of the start weights for KL terms. */
  withReference?: boolean;
  maxMemoryMib?: number;
}

/** Rollout and sequence sizes as a training config asks for them. */
export function engineSizes({ data, rollout, actor, algorithm, model, engine }: TrainConfig) {
  const maxPositions = data.maxPromptLength + data.maxResponseLength;
  return {
    engine,
    maxTokenLen: actor.maxTokenLen,
    maxPositions,
    withReference: actor.useKlLoss || algorithm.useKlInReward,
    rollout: {
      maxSlots: rollout.maxSlots,
      slotCapacity: data.maxResponseLength,
      maxPrompts: rollout.maxSlots,
      maxPromptLength: data.maxPromptLength,
      maxBatchedTokens: Math.max(2048, maxPositions),
    },
    ...(model.maxMemoryMib !== undefined && { maxMemoryMib: model.maxMemoryMib }),
  };
}
