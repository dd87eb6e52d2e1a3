/** Who decides between the choices of a rubric: a model that says how likely each reply is. */

import type { ModelEngine } from '../../../model/engine.ts';
import { packGroups, type SequenceGroup } from '../../../model/packing.ts';
import type { ChatTokenizer } from '../../../model/tokenizer/chat.ts';

/** A model that adds up log-probs, with its own tokenizer. */
export interface RubricJudge {
  /** The judge's own. */
  tokenizer: ChatTokenizer;
  /** [groups][samples] sum of the natural log-probs of a sample's masked tokens, temperature 1. */
  logProbs(groups: SequenceGroup[]): Promise<Float64Array[]>;
}

/**
 * A judge on our own engine, such as `engine.reference`: forward passes of at most `maxTokenLen` rows, without sampling.
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
 * Runs what waits together: while one batch is computed the next gathers, of at most `most` items. An item's batch changes
 * none of its numbers. A batch that fails fails its own items alone.
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
