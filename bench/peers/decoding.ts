/** Code that the decode peers share: prompts, greedy choice, timing. */

import { HEADLINE, tokenIds } from '../models.ts';
import type { DecodedSequences } from './types.ts';

const PROMPT = 8;

/** Returns a prompt for each sequence, all of one length. */
export const peerPrompts = (sequences: number): Uint32Array[] =>
  Array.from({ length: sequences }, (_, s) => tokenIds(PROMPT, HEADLINE.vocabSize, s + 1));

/** One model with a cache for a number of sequences. `next` takes [B, S] ids, row by row, and returns logits [B, V]. */
export interface CachedModel {
  next(ids: Uint32Array, S: number): Promise<Float32Array>;
  dispose(): void;
}

/** Decodes greedily. Only the steps after the prompt are timed, because a KV cache speeds up those steps. */
export async function decodeGreedy(
  open: () => CachedModel,
  sequences: number,
  newTokens: number,
  rounds: number,
): Promise<DecodedSequences> {
  let best: DecodedSequences | undefined;
  for (let round = 0; round <= rounds; round++) {
    const model = open();
    const { picks, seconds } = await generate(model, sequences, newTokens);
    model.dispose();
    const tokensPerSecond = (sequences * (newTokens - 1)) / seconds;
    const of = (key: 'id' | 'logProb') => Array.from({ length: sequences }, (_, s) => picks.map((p) => p[s][key]));
    // The first round compiles kernels.
    if (round > 0 && tokensPerSecond > (best?.tokensPerSecond ?? 0))
      best = { tokensPerSecond, tokens: of('id'), logProbs: of('logProb') };
  }
  return best!;
}

async function generate(model: CachedModel, sequences: number, newTokens: number) {
  const prompts = new Uint32Array(sequences * PROMPT);
  peerPrompts(sequences).forEach((ids, s) => prompts.set(ids, s * PROMPT));
  const picks = [pick(await model.next(prompts, PROMPT), sequences)];
  const started = performance.now();
  while (picks.length < newTokens) {
    const ids = Uint32Array.from(picks.at(-1)!, ({ id }) => id);
    picks.push(pick(await model.next(ids, 1), sequences));
  }
  return { picks, seconds: (performance.now() - started) / 1000 };
}

/** Returns the largest logit of each row of [B, V], with its log-prob. */
function pick(logits: Float32Array, B: number): { id: number; logProb: number }[] {
  const V = logits.length / B;
  return Array.from({ length: B }, (_, b) => {
    const row = logits.subarray(b * V, (b + 1) * V);
    let id = 0;
    for (let i = 1; i < V; i++) if (row[i] > row[id]) id = i;
    let sum = 0;
    for (let i = 0; i < V; i++) sum += Math.exp(row[i] - row[id]);
    return { id, logProb: -Math.log(sum) };
  });
}
