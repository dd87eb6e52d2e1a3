/** The judge of a rubric: a model that computes the probability of each reply. */

import type { ModelEngine } from '../../../model/engine.ts';
import { packGroups, type SequenceGroup } from '../../../model/packing.ts';
import type { ChatTokenizer } from '../../../model/tokenizer/chat.ts';

/** A model that sums log-probs, with its own tokenizer. */
export interface RubricJudge {
  /** Tokenizer of the judge. */
  tokenizer: ChatTokenizer;
  /** [groups][samples] sum of the natural log-probs of a sample's masked tokens, temperature 1. */
  logProbs(groups: SequenceGroup[]): Promise<Float64Array[]>;
}

/**
 * Creates a judge on our own engine, such as `engine.reference`. Forward passes have at most `maxTokenLen` rows.
 * Throws what the engine throws.
 */
export const engineJudge = (model: ModelEngine, tokenizer: ChatTokenizer, maxTokenLen: number): RubricJudge => ({
  tokenizer,
  async logProbs(groups) {
    const sums = groups.map(({ samples }) => new Float64Array(samples.length));
    for (const { batch, entryGroup, entrySample } of packGroups(groups, maxTokenLen)) {
      const { logProbs } = await model.logProbs(batch, { temperature: 1 });
      logProbs.forEach((logp, e) => (sums[entryGroup[e]][entrySample[e]] += logp));
    }
    return sums;
  },
});

/**
 * Runs waiting items in batches of at most `most`: the next batch gathers while one is computed. Batching changes no item's
 * numbers. If a batch fails, only its own items fail.
 */
export function batched<T, R>(most: number, run: (items: T[]) => Promise<R[]>): (item: T) => Promise<R> {
  let waiting: { item: T; resolve: (result: R) => void; reject: (error: unknown) => void }[] = [];
  let running = false;
  const work = async () => {
    while (waiting.length > 0) {
      const batch = waiting.slice(0, most);
      waiting = waiting.slice(most);
      try {
        const results = await run(batch.map(({ item }) => item));
        batch.forEach(({ resolve }, i) => resolve(results[i]));
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
    running = false;
  };
  return (item) =>
    new Promise((resolve, reject) => {
      waiting.push({ item, resolve, reject });
      if (running) return;
      running = true;
      queueMicrotask(() => void work());
    });
}
