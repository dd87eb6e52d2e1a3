/** `webgrpo generate`: one answer of a checkpoint, printed as it is made. */

import { randomKey } from '../../grpo/rolloutStep.ts';
import { InputError } from '../../model/errors.ts';
import type { SamplingParams } from '../../rollout/types.ts';
import { numberFlag } from '../args.ts';
import { loadWithAdapter } from '../checkpoints.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { say } from '../progress.ts';
import { openEngine } from '../session.ts';
import { packedFormat } from './score.ts';

/** Tokens between two pieces of output. */
const PIECE = 8;

export const generate: Command = {
  summary: 'one answer of a checkpoint, streamed',
  usage: ['generate --model checkpoints/gsm8k-tool --prompt "Tom has 3 apples and buys 4. How many has he?"'],
  flags: {
    ...JSON_FLAG,
    model: { value: 'FOLDER', help: 'checkpoint or run folder' },
    adapter: { value: 'FOLDER', help: 'LoRA adapter (PEFT folder or run folder) over the model' },
    prompt: { value: 'TEXT', help: "the user's message" },
    raw: { help: 'continue the text itself, without the chat template' },
    temperature: { value: 'T', help: '0 = greedy (default 1)' },
    'max-new-tokens': { value: 'N', help: 'default 160' },
    seed: { value: 'N', help: 'default 1' },
    quantization: { value: 'FORMAT', help: 'keep weights as float16, int8 or int4' },
  },
  async run({ flags }, io) {
    const { model: path, prompt } = flags;
    if (typeof path !== 'string') throw new InputError('Which model? Give --model FOLDER.');
    if (typeof prompt !== 'string') throw new InputError('What should it answer? Give --prompt TEXT.');
    const maxNewTokens = numberFlag(flags, 'max-new-tokens', 160, [1, 1 << 20]);
    const temperature = numberFlag(flags, 'temperature', 1, [0, 100]);
    const seed = numberFlag(flags, 'seed', 1, [0, 2 ** 31]);
    const adapter = flags['adapter'];
    const model = await loadWithAdapter(path, typeof adapter === 'string' ? adapter : undefined);
    // Sizes follow from the prompt, so it is encoded before there is an engine.
    const { ChatTokenizer } = await import('../../model/tokenizer.ts');
    const tokenizer = new ChatTokenizer(model.tokenizerJson, model.tokenizerConfigJson);
    const promptIds = flags['raw']
      ? Uint32Array.from(tokenizer.encode(prompt))
      : tokenizer.encodeChat([{ role: 'user', content: prompt }]);
    const maxPositions = promptIds.length + maxNewTokens;
    if (maxPositions > model.config.maxPositionEmbeddings) {
      throw new InputError(
        `The prompt of ${promptIds.length} tokens and ${maxNewTokens} new ones exceed the model's ` +
          `${model.config.maxPositionEmbeddings} positions; lower --max-new-tokens or shorten the prompt.`,
      );
    }
    const engine = await openEngine(model, {
      engine: 'wgsl',
      use: 'generate',
      ...(flags['quantization'] !== undefined && { weightFormat: packedFormat(flags['quantization']) }),
      maxTokenLen: maxPositions,
      maxPositions,
      rollout: {
        maxSlots: 1,
        slotCapacity: maxNewTokens,
        maxPrompts: 1,
        maxPromptLength: promptIds.length,
        maxBatchedTokens: Math.max(256, maxPositions),
      },
    });
    try {
      const started = performance.now();
      const show = (ids: readonly number[]) => tokenizer.decode(ids, { skipSpecialTokens: true });
      const ids: number[] = [];
      let stopReason = 'length';
      let shown = '';
      while (ids.length < maxNewTokens) {
        const sampling: SamplingParams = {
          ...{ temperature, topK: 0, topP: 1, minP: 0 },
          maxNewTokens: Math.min(PIECE, maxNewTokens - ids.length),
          stopTokenIds: tokenizer.eosTokenIds,
        };
        const contextIds = Uint32Array.from([...promptIds, ...ids]);
        const key = randomKey(seed, 0, 0, 0);
        const request = { requestId: 'generate', contextIds, promptLength: promptIds.length, key, sampling };
        const piece = await engine.rollout.generate(request);
        ids.push(...piece.tokenIds);
        // A character may need more than one token: what is not whole yet is printed with the next piece.
        const text = show(ids).replace(/\uFFFD+$/, '');
        if (!io.json) process.stdout.write(text.slice(shown.length));
        shown = text;
        if (piece.stopReason !== 'length') {
          stopReason = piece.stopReason;
          break;
        }
      }
      engine.rollout.release('generate');
      const seconds = (performance.now() - started) / 1000;
      io.text('');
      say(`${ids.length} tokens, ${(ids.length / seconds).toFixed(1)} tokens/s, ${stopReason}`);
      io.result({ text: show(ids), tokenIds: ids, stopReason, seconds, tokensPerSecond: ids.length / seconds });
    } finally {
      engine.destroy();
    }
  },
};
