/** The judge of a rubric: a model that computes how probable each of the allowed replies is. */

import type { ModelEngine } from '../../../model/engine.ts';
import { packGroups, type SequenceGroup } from '../../../model/packing.ts';
import type { ChatTokenizer } from '../../../model/tokenizer/chat.ts';

/** A model that computes the log-probs of given tokens, with its own tokenizer. */
export interface RubricJudge {
  /** Tokenizer of the judge. */
  tokenizer: ChatTokenizer;
  /** Returns per sample the sum of the log-probs (natural, temperature 1) of the tokens whose mask is 1: [groups][samples]. */
  logProbs(groups: SequenceGroup[]): Promise<Float64Array[]>;
}

/**
 * Creates a judge on an engine of webgrpo, such as `engine.reference`. Its forward passes have at most `maxTokenLen` rows. Throws what the
 * engine throws.
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
 * Returns a function that runs items in batches of at most `most`. While a batch is computed, the next items are collected. Batching does
 * not change the result of an item. If a batch fails, only its own items fail.
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
