/**
 * Runs in a separate thread: opens the models that it receives, and reports whether each ended in an error message of webgrpo or in
 * a usable model.
 */

import { InputError } from '../../src/errors.ts';
import { type CheckpointSource, loadCheckpoint } from '../../src/model/checkpoint/checkpoint.ts';
import { parseModelConfig } from '../../src/model/config.ts';
import { loadAdapter, mergeAdapter } from '../../src/model/lora/adapter.ts';
import { initWeights } from '../../src/model/params.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { vocabularyOf } from '../../src/model/tokenizer/vocabulary.ts';
import type { Verdict } from '../isolated.ts';
import { ADAPTED, type ModelInput } from './input.ts';

/** Texts on which a tokenizer's regular expression can hang, and ordinary texts. */
const TEXTS = [
  'How many apples, 12,345?\n\nThe answer: caf\u00e9 \u4f60\u597d \ud83d\ude00 <|im_end|>',
  ...['a', ' ', '1', '\n', 'ab', 'A', '!', '\u4f60', "'s"].map((unit) => `${unit.repeat(300)}\u0000`),
  'a b '.repeat(3000),
];

const USES: Record<ModelInput['kind'], (source: CheckpointSource) => Promise<void>> = {
  async checkpoint(source) {
    const { config, weights } = await loadCheckpoint(source);
    expect(config.hiddenSize > 0 && weights.size > 0, 'an empty model');
    for (const [name, { data }] of weights) expect(data.every(Number.isFinite), `${name} is not finite`);
  },
  async tokenizer(source) {
    const json = async (file: string): Promise<unknown> => JSON.parse(new TextDecoder().decode(await source(file)));
    const [tokenizerJson, config] = [await json('tokenizer.json'), await json('tokenizer_config.json')];
    const tokenizer = new ChatTokenizer(tokenizerJson, config);
    for (const content of TEXTS) {
      const ids = [
        ...tokenizer.encodeChat([
          { role: 'system', content: 'Be brief.' },
          { role: 'user', content },
        ]),
      ];
      const isId = (id: number) => Number.isInteger(id) && id >= 0 && id < tokenizer.vocabSize;
      expect(ids.every(isId), `an id that is none, ${String(ids.find((id) => !isId(id)))}`);
      expect(typeof tokenizer.decode(ids) === 'string', 'decodes to no text');
    }
    // Both calls may throw: some templates cannot continue after a turn, and some decoders do not work on bytes.
    allowed(() => tokenizer.encodeContinuation([{ role: 'tool', content: '42' }]));
    allowed(() => vocabularyOf(tokenizerJson));
  },
  async adapter(source) {
    const config = parseModelConfig(ADAPTED);
    const adapter = await loadAdapter(source, config);
    for (const { data } of mergeAdapter(config, initWeights(config, 1), adapter).values())
      expect(data.every(Number.isFinite), 'merges to values that are not finite');
  },
};

function expect(holds: boolean, otherwise: string): void {
  if (!holds) throw new Error(`taken, but ${otherwise}`);
}

function allowed(use: () => unknown): void {
  try {
    use();
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
  }
}

async function judge({ kind, files }: ModelInput): Promise<Verdict> {
  try {
    await USES[kind](async (path) => files.get(path));
    return { held: 'work' };
  } catch (error) {
    if (!(error instanceof InputError)) return { wrong: String((error as Error).stack ?? error).slice(0, 300) };
    const { message } = error;
    const isSentence = message.length <= 600 && !/[\p{Cc}\u2028\u2029]|\[object |undefined(?! )/u.test(message);
    return isSentence ? { held: 'refused' } : { wrong: `says ${JSON.stringify(message).slice(0, 300)}` };
  }
}

const port = globalThis.process.getBuiltinModule('node:worker_threads').parentPort!;
port.on('message', (input: ModelInput) => void judge(input).then((verdict) => port.postMessage(verdict)));
