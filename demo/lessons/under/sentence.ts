/** Log-probs of a given text, with the cache and without it. The page, its recorder and a GPU test call it. */

import type { TrainConfig } from '../../../src/grpo/config/types.ts';
import type { TrainerEngine } from '../../../src/grpo/types.ts';
import { packGroups } from '../../../src/model/packing.ts';
import { GREEDY } from '../../../src/grpo/generate/options.ts';
import { questionOf } from '../../../src/extensions/ask/index.ts';
import type { Task } from '../../../src/tasks/task.ts';

/** Tokens of a text, each with its log-prob: `cached` token by token, as tries are drawn; `whole` in one pass, as they are trained. */
export interface Scored {
  tokens: string[];
  cached: number[];
  whole: number[];
}

/** Maximum number of tokens of a text. */
const MOST = 48;
/** Bias by which a token is certain to be drawn. The log-prob is the one without the bias. */
const CERTAIN = 1e6;

let asked = 0;

/** Scores `text` as the model's answer to a problem. A longer text is cut at its 48th token. */
export async function scoreTwice(
  { config, engine, task }: { config: TrainConfig; engine: TrainerEngine; task: Task },
  { problem, text, onToken }: { problem: string; text: string; onToken?: (done: number, of: number) => void },
): Promise<Scored> {
  const { model, rollout, tokenizer } = engine;
  const prompt = tokenizer.encodeChat((await questionOf(task, problem)).messages);
  const ids = Uint32Array.from(tokenizer.encodePlain(text).slice(0, MOST));
  const whole: number[] = [];
  const mask = new Uint8Array(ids.length).fill(1);
  for (const { batch } of packGroups([{ prompt, samples: [{ tokens: ids, mask }] }], config.actor.ppoMaxTokenLenPerGpu))
    whole.push(...(await model.logProbs(batch, { temperature: 1 })).logProbs);
  const cached: number[] = [];
  const requestId = `sentence.${asked++}`;
  try {
    for (const [t, id] of ids.entries()) {
      const contextIds = Uint32Array.from([...prompt, ...ids.subarray(0, t)]);
      const { logProbs } = await rollout.generate({
        ...{ requestId, contextIds, promptLength: prompt.length, key: [0, 0] },
        sampling: { ...GREEDY, maxNewTokens: 1, stopTokenIds: [], logitBias: [[id, CERTAIN]] },
      });
      cached.push(logProbs[0]);
      onToken?.(t + 1, ids.length);
    }
  } finally {
    rollout.release(requestId);
    await rollout.resetCache(0);
    await rollout.takeStats();
  }
  return { tokens: Array.from(ids, (id) => tokenizer.decode([id])), cached, whole };
}
