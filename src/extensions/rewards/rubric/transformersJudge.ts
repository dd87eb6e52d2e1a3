/** A judge for rubrics that runs on transformers.js. */

import type { SequenceGroup } from '../../../model/packing.ts';
import { ChatTokenizer } from '../../../model/tokenizer/chat.ts';
import { open } from '../transformersModels.ts';
import type { RubricJudge } from './judge.ts';

/**
 * Opens a causal model that computes log-probs. Its tokenizer is read by webgrpo, not by transformers.js. A prompt is computed once, and
 * each reply continues from the prompt's keys and values, one sequence at a time. Throws InputError if the model cannot be opened.
 * @param name folder or name of a chat model in ONNX format
 */
export async function transformersJudge(name: string): Promise<RubricJudge> {
  const { Tensor, DynamicCache, model, tokenizer } = await open('reward.judge.path', name, async (library) => {
    const { AutoTokenizer, AutoModelForCausalLM, ...rest } = library;
    const [tokenizer, model] = [
      await AutoTokenizer.from_pretrained(name),
      await AutoModelForCausalLM.from_pretrained(name),
    ];
    return { ...rest, model, tokenizer };
  });
  const config = { ...(tokenizer._tokenizerConfig as object), chat_template: tokenizer.chat_template as unknown };
  const int64 = (values: ArrayLike<number>) =>
    new Tensor('int64', BigInt64Array.from(Array.from(values), BigInt), [1, values.length]);
  type Cache = InstanceType<typeof DynamicCache>;
  /** Returns the logits of `ids` as a continuation of the cached tokens, and the cache extended by `ids`. */
  const forward = async (ids: Uint32Array, before = 0, past: Cache | null = null) => {
    const mask = int64(new Uint8Array(before + ids.length).fill(1));
    const inputs = { input_ids: int64(ids), attention_mask: mask, past_key_values: past };
    const { logits, ...rest } = (await model(inputs)) as Record<string, InstanceType<typeof Tensor>>;
    const kept = Object.entries(rest).map(
      ([key, value]) => [key.replace('present', 'past_key_values'), value] as const,
    );
    return {
      logits: logits.to('float32').data as Float32Array,
      cache: new DynamicCache(Object.fromEntries(kept)),
    };
  };
  const groupLogProbs = async ({ prompt, samples }: SequenceGroup): Promise<Float64Array> => {
    const sums = new Float64Array(samples.length);
    const first = await forward(prompt);
    const V = first.logits.length / prompt.length;
    for (const [s, { tokens, mask }] of samples.entries()) {
      const rows = mask.lastIndexOf(1);
      const rest = rows > 0 ? await forward(tokens.subarray(0, rows), prompt.length, first.cache) : undefined;
      for (let t = 0; t <= rows; t++) {
        if (mask[t] !== 1) continue;
        const row = t === 0 ? first.logits.subarray(-V) : rest!.logits.subarray((t - 1) * V, t * V);
        sums[s] += logSoftmaxAt(row, tokens[t]);
      }
      await rest?.cache.dispose();
    }
    await first.cache.dispose();
    return sums;
  };
  return {
    tokenizer: new ChatTokenizer(tokenizer._tokenizerJSON, config),
    async logProbs(groups) {
      const sums: Float64Array[] = [];
      for (const group of groups) sums.push(await groupLogProbs(group));
      return sums;
    },
  };
}

/** Returns the log-softmax of one logit, computed in float64. */
function logSoftmaxAt(logits: Float32Array, at: number): number {
  const most = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  return logits[at] - most - Math.log(logits.reduce((sum, x) => sum + Math.exp(x - most), 0));
}
