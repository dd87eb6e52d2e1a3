/**
 * Tests stop strings: matching them across tokens, the scheduler, which truncates at them, and the agent loop, which continues after them.
 */
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { tokenBytes, type Vocabulary, vocabularyOf } from '../../src/model/tokenizer/vocabulary.ts';
import { InputError } from '../../src/errors.ts';
import { checkRequest, servedRequest } from '../../src/rollout/server/request.ts';
import { RolloutServer } from '../../src/rollout/server/server.ts';
import { cutAtStop, StopMatcher } from '../../src/rollout/decode/stopStrings.ts';
import type { GenerateRequest, Generation, SamplingParams } from '../../src/rollout/types.ts';
import { run, ScriptedTurns, tokenizer } from '../scriptedTurns.ts';
import { ModelSlotDecoder } from '../slotDecoder.ts';

const encoder = new TextEncoder();

function vocabularyOfTexts(tokens: (string | number[])[]): Vocabulary {
  const parts = tokens.map((token) => (typeof token === 'string' ? encoder.encode(token) : Uint8Array.from(token)));
  const starts = new Uint32Array(tokens.length + 1);
  parts.forEach((part, t) => (starts[t + 1] = starts[t] + part.length));
  return { bytes: Uint8Array.from(parts.flatMap((part) => [...part])), starts };
}

/**
 * Returns the number of tokens up to and including the one that completes a stop string, and the stop string; undefined if none is
 * completed.
 */
function stopOf(tokens: (string | number[])[], stop: string[], minNewTokens = 0) {
  const matcher = new StopMatcher(stop, vocabularyOfTexts(tokens), minNewTokens);
  for (const t of tokens.keys()) {
    const found = matcher.feed(t);
    if (found !== undefined) return [t + 1, found];
  }
  return undefined;
}

describe('matcher', () => {
  test.each<[string, (string | number[])[], string[], ReturnType<typeof stopOf>]>([
    ['within one token', ['a', 'b STOP c', 'd'], ['STOP'], [2, 'STOP']],
    ['a token of its own', ['a', 'STOP', 'd'], ['STOP'], [2, 'STOP']],
    ['over three tokens', ['aS', 'TO', 'Pb', 'c'], ['STOP'], [3, 'STOP']],
    ['almost, then really', ['STO', 'STOP'], ['STOP'], [2, 'STOP']],
    ['a start that overlaps itself', ['aab', 'aab', 'aaa', 'b'], ['aabaaa'], [3, 'aabaaa']],
    ['one that the text never holds', ['STO', 'p'], ['STOP'], undefined],
    ['the one that ends first', ['x\n', '\n#'], ['#', '\n\n'], [2, '\n\n']],
    ['a character over two tokens', ['caf', [0xc3], [0xa9, 0x20]], ['\u00e9'], [3, '\u00e9']],
    ['an emoji over four tokens', [[0xf0], [0x9f], [0x98], [0x80], 'x'], ['\u{1f600}'], [4, '\u{1f600}']],
    ['bytes that only look like it', [[0xc3], 'x', [0xa9]], ['\u00e9'], undefined],
    ['tokens without bytes between', ['ST', '', 'OP'], ['STOP'], [3, 'STOP']],
  ])('%s', (_, tokens, stop, want) => expect(stopOf(tokens, stop)).toEqual(want));

  test('a string that is complete before minNewTokens tokens does not count, a later one does', () => {
    expect(stopOf(['.', 'a.b', '.'], ['.'], 3)).toEqual([3, '.']);
    expect(stopOf(['.', 'a.b', '.'], ['.'], 2)).toEqual([2, '.']);
    expect(stopOf(['a.', '.b', 'x'], ['..'], 2)).toEqual([2, '..']);
  });

  test.each([
    ['say STOP now', 'say STO', 'STOP', false, 'say '],
    ['say STOP now', 'say STO', 'STOP', true, 'say STOP'],
    ['a.b. c', 'a.b', '.', false, 'a.b'],
    ['caf\u00e9!', 'caf\ufffd', '\u00e9', true, 'caf\u00e9'],
  ])('the text %j is cut where its last token completes the string', (text, before, stop, include, want) =>
    expect(cutAtStop(text, before, stop, include)).toBe(want),
  );
});

describe('vocabulary', () => {
  const json: unknown = JSON.parse(readFileSync('checkpoints/gsm8k-tool/tokenizer.json', 'utf8'));

  test('a byte-level tokenizer: the bytes of a text are those of its tokens; special tokens have none', () => {
    const vocabulary = vocabularyOf(json);
    const text = 'Tom has 3 caf\u00e9s \u{1f600}\n<tool_call>{"x": 1}</tool_call>';
    const bytes = tokenizer.encode(text).flatMap((id) => [...tokenBytes(vocabulary, id)]);
    expect(bytes).toEqual([...encoder.encode(text)]);
    expect(vocabulary.starts.length).toBe(tokenizer.vocabSize + 1);
    expect(tokenBytes(vocabulary, tokenizer.eosTokenIds[0])).toHaveLength(0);
    expect(tokenBytes(vocabulary, 100_000)).toHaveLength(0);
  });

  test('SentencePiece with byte fallback', () => {
    const vocab = { '<unk>': 0, '<0x0A>': 1, '\u2581a': 2, '</s>': 3 };
    const decoder = { type: 'Sequence', decoders: [{ type: 'Replace' }, { type: 'ByteFallback' }] };
    const added_tokens = [{ id: 3, content: '</s>', special: true }];
    const vocabulary = vocabularyOf({ model: { vocab }, decoder, added_tokens });
    expect([1, 2, 3].map((t) => [...tokenBytes(vocabulary, t)])).toEqual([[10], [32, 97], []]);
  });

  test('other kinds of tokenizers are refused', () =>
    expect(() => vocabularyOf({ model: { vocab: {} }, decoder: { type: 'WordPiece' } })).toThrow(
      'The tokenizer decodes by WordPiece. Stop strings and constrained tool calls need one of ByteLevel',
    ));
});

describe('scheduler', () => {
  const SIZES = { maxNumSeqs: 4, slotCapacity: 96, maxPrompts: 4, maxPromptLength: 20, maxBatchedTokens: 64 };
  /** The text of token t is two letters. */
  const letters = Array.from({ length: 64 }, (_, t) => String.fromCharCode(97 + (t % 8), 97 + (t >> 3)));
  const vocabulary = vocabularyOfTexts(letters);
  const newServer = (sizes = SIZES) =>
    new RolloutServer(new ModelSlotDecoder(sizes), { preemption: 'latest', vocabulary: () => vocabulary });
  const request = (s: number, sampling: Partial<SamplingParams> = {}): GenerateRequest => ({
    requestId: `${s}`,
    contextIds: Uint32Array.of(1, 2, 3),
    promptLength: 3,
    key: [7, s] as const,
    sampling: { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens: 40, stopTokenIds: [], ...sampling },
  });
  const textOf = (ids: ArrayLike<number>) => Array.from(ids, (id) => letters[id]).join('');

  test('a turn ends at the token that completes the string; later tokens are dropped and counted', async () => {
    const server = newServer();
    const plain = await server.generate(request(0));
    server.release('0');
    // The stop string starts in token 20 and ends in token 21. The decoder had sampled later tokens long before the host checked these.
    const stop = [textOf(plain.tokenIds.subarray(20, 22)).slice(1, 3)];
    const end = textOf(plain.tokenIds).indexOf(stop[0]) + 2;
    const tokens = Math.ceil(end / 2);
    await server.takeStats();
    const cut = await server.generate(request(0, { stop }));
    expect(cut).toEqual({
      tokenIds: plain.tokenIds.subarray(0, tokens),
      logProbs: plain.logProbs.subarray(0, tokens),
      weightVersions: new Uint32Array(tokens),
      stopReason: 'stop_string',
      stopString: stop[0],
    });
    const stats = await server.takeStats();
    expect(stats.generatedTokens).toBe(tokens);
    expect(stats.wastedRows).toBe(stats.liveRows - (tokens - 1));
  });

  /** Runs two turns. The context of the second is that of the first, its tokens, and two more. */
  async function turns(server: RolloutServer, q: GenerateRequest): Promise<Generation[]> {
    const first = await server.generate(q);
    const contextIds = Uint32Array.from([...q.contextIds, ...first.tokenIds, 9, 8]);
    const second = await server.generate({ ...q, contextIds });
    server.release(q.requestId);
    return [first, second];
  }

  test('the next turn continues from the cache as after any end of a turn', async () => {
    const stop = ['a', 'hh'];
    const requests = Array.from({ length: 24 }, (_, s) => request(s, { stop, maxNewTokens: 30 }));
    const alone = newServer();
    const want: Generation[][] = [];
    for (const q of requests) want.push(await turns(alone, q));
    expect(new Set(want.flat().map((g) => g.stopString))).toEqual(new Set(stop));
    for (const [{ tokenIds, stopReason }] of want) {
      const text = textOf(tokenIds);
      expect(stopReason).toBe('stop_string');
      expect(stop.some((s) => text.includes(s))).toBe(true);
      expect(stop.some((s) => text.slice(0, -2).includes(s))).toBe(false);
    }
    expect(await Promise.all(requests.map((q) => turns(newServer({ ...SIZES, maxNumSeqs: 1 }), q)))).toEqual(want);
    const shared = newServer({ ...SIZES, maxNumSeqs: 2 });
    expect(await Promise.all(requests.map((q) => turns(shared, q)))).toEqual(want);
  });

  test('a turn that is continued in pieces is the turn in one piece, with a stop string across a cut', async () => {
    const server = newServer();
    const plain = await server.generate(request(0));
    server.release('0');
    const stop = [textOf(plain.tokenIds.subarray(20, 22)).slice(1, 3)];
    const whole = await server.generate(request(0, { stop }));
    server.release('0');
    expect(whole.stopReason).toBe('stop_string');
    let piece: Generation | undefined;
    for (let length = 1; piece?.stopReason !== 'stop_string' && length <= 40; length++)
      piece = await server.generate({ ...request(0, { stop, maxNewTokens: length }), ...(piece && { drawn: piece }) });
    expect(piece).toEqual(whole);
  });

  test('refused: no vocabulary, an empty string, too many', async () => {
    const plain = new RolloutServer(new ModelSlotDecoder(SIZES));
    await expect(plain.generate(request(0, { stop: ['x'] }))).rejects.toThrow('was made without a vocabulary');
    await expect(plain.generate(request(0, { stop: [''] }))).rejects.toThrow('A stop string is empty');
    const many = Array.from({ length: 17 }, (_, i) => `${i}`);
    await expect(plain.generate(request(0, { stop: many }))).rejects.toThrow('17 stop strings were given. At most 16');
  });
});

describe('agent loop', () => {
  /** An engine whose first turn ends at a stop string, without an end token. */
  class StoppingEngine extends ScriptedTurns {
    override async generate(request: GenerateRequest): Promise<Generation> {
      const first = this.requests.length === 0;
      const generation = await super.generate(request);
      if (!first) return generation;
      const tokenIds = generation.tokenIds.subarray(0, -1);
      const logProbs = generation.logProbs.subarray(0, -1);
      return { ...generation, tokenIds, logProbs, stopReason: 'stop_string', stopString: '</tool_call>' };
    }
  }
  const call = '<tool_call>{"name": "calculator", "arguments": {"expression": "6*7"}}</tool_call>';
  const sampling = (includeStopStrInOutput: boolean): SamplingParams => ({
    temperature: 1,
    topK: 0,
    topP: 1,
    minP: 0,
    maxNewTokens: 100,
    stopTokenIds: tokenizer.eosTokenIds,
    stop: ['</tool_call>'],
    includeStopStrInOutput,
  });

  test('an end token that the model did not sample is added, outside the loss', async () => {
    const turns = [call, '#### 42'];
    const plain = await run(turns);
    const stopped = await run(turns, { engine: new StoppingEngine(turns), sampling: sampling(true) });
    expect(stopped.trajectory.responseIds).toEqual(plain.trajectory.responseIds);
    const end = tokenizer.encode(call).length;
    const want = [...plain.trajectory.mask];
    want[end] = 0;
    expect([...stopped.trajectory.mask]).toEqual(want);
    expect(stopped.messages).toEqual(plain.messages);
  });

  test('without the stop string in its output the parser does not see it', async () => {
    const engine = new StoppingEngine([call, 'done']);
    const { messages } = await run([], { engine, sampling: sampling(false) });
    expect(messages[0].content).toBe(call.replace('</tool_call>', ''));
    expect(messages[1].content).toContain('without </tool_call>');
  });
});

test('a turn that must be JSON has no minNewTokens; refused: five end tokens (the model can have four, and its tool format one more), and a token that it does not have', () => {
  const sampling = { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens: 9, stopTokenIds: [1, 2, 3, 4, 5] };
  const request = {
    requestId: 'a',
    contextIds: Uint32Array.of(1),
    promptLength: 1,
    key: [0, 0] as const,
    sampling,
  };
  const sizes = { maxNumSeqs: 1, slotCapacity: 16, maxPrompts: 1, maxPromptLength: 8, maxBatchedTokens: 8 };
  expect(() => checkRequest(request, sizes, 9)).toThrow(InputError);
  expect(() => checkRequest(request, sizes, 9)).toThrow(
    '5 stop token ids were given (1, 2, 3, 4, 5). At most 4 are allowed',
  );
  const minNewTokens = (more: object) =>
    servedRequest({ ...request, sampling: { ...sampling, minNewTokens: 5, ...more } }, 16).sampling.minNewTokens;
  expect([{}, { requiredCalls: 'one' }, { jsonSchema: {} }].map(minNewTokens)).toEqual([5, 0, 0]);
  const callsOf = (toolCallFormat: string) => minNewTokens({ toolCalls: [{ name: 'add' }], toolCallFormat });
  expect(['hermes', 'llama3_json'].map(callsOf)).toEqual([5, 0]);
  const other = { ...request, contextIds: Uint32Array.of(8, 9), sampling: { ...sampling, stopTokenIds: [1] } };
  expect(() => checkRequest(other, sizes, 10)).not.toThrow();
  expect(() => checkRequest(other, sizes, 9)).toThrow(
    "The context has token 9, but the model's vocabulary has 9 tokens.",
  );
});
