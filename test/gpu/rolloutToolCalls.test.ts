/**
 * Tests constrained tool calls on the GPU: an untrained model's calls are valid, and training uses the distribution that was sampled from.
 */
import { expect, test } from 'vitest';
import { packGroups } from '../../src/model/packing.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { vocabularyOf } from '../../src/model/tokenizer/vocabulary.ts';
import { WgslEngine } from '../../src/model/wgslEngine.ts';
import { CallGuide } from '../../src/extensions/constrained/guide.ts';
import { WgslRolloutEngine } from '../../src/rollout/server/server.ts';
import { TOOL_PARSERS } from '../../src/rollout/tools/parser.ts';
import type { CallFormat, GenerateRequest, Generation, SamplingParams } from '../../src/rollout/types.ts';
import { gsm8kTokenizer } from '../gsm8kTokenizer.ts';
import type { Tool } from '../../src/tasks/tool.ts';
import { isFull } from './full.ts';
import { testGpu, withGpu } from './gpu.ts';
import { SIZES } from './rolloutCases.ts';
import { tinyModel } from './tinyModel.ts';
import { anyNumber } from '../stub.ts';

const files = gsm8kTokenizer;
const tokenizer = new ChatTokenizer(files.tokenizer, files.config);
const vocabulary = vocabularyOf(files.tokenizer);
const V = tokenizer.vocabSize;
/** test/unit/callGuide.test.ts draws calls of every format, every day. */
const FORMATS = (['hermes', 'qwen3_coder', 'llama3_json'] as const).slice(0, isFull ? 3 : 1);
/** Returns the token with which a tool call starts in this format. */
const opens = (format: CallFormat) => tokenizer.encode(format === 'llama3_json' ? '{' : '<tool_call>')[0];
const TOOLS: Tool[] = [
  {
    name: 'calculator',
    description: '',
    execute: () => '',
    parameters: { type: 'object', properties: { expression: { type: 'string' } }, required: ['expression'] },
  },
  {
    name: 'order',
    description: '',
    execute: () => '',
    parameters: {
      type: 'object',
      properties: {
        size: { type: 'string', enum: ['S', 'M'] },
        count: { type: 'integer' },
        gift: { type: 'boolean' },
        price: { type: 'number' },
      },
      required: ['count'],
    },
  },
];
const toolCalls = TOOLS.map(({ name, parameters }) => ({ name, parameters }));
/** Token limit of a turn, enough for any call. */
const LEFT = 56;
const sizes = { ...SIZES, maxNumSeqs: 8, slotCapacity: 140 };
const prompt = Uint32Array.from(tokenizer.encode('Tom has 3 apples.'));

const request = (s: number, format: CallFormat, more: Partial<SamplingParams> = {}): GenerateRequest => ({
  requestId: `${s}`,
  contextIds: prompt,
  promptLength: prompt.length,
  key: [5, s] as const,
  sampling: {
    temperature: 0.9,
    topK: 0,
    topP: 1,
    minP: 0,
    maxNewTokens: LEFT,
    stopTokenIds: tokenizer.eosTokenIds,
    // The model is untrained, so a logit bias makes it start tool calls.
    toolCalls,
    toolCallFormat: format,
    logitBias: [[opens(format), 30]],
    ...more,
  },
});

/** Checks every call of a turn; returns the number of calls. */
function checkCalls({ tokenIds }: Generation, format: CallFormat): number {
  const text = tokenizer.decode(tokenIds, { skipSpecialTokens: true });
  const calls = TOOL_PARSERS[format](text, TOOLS);
  for (const { error } of calls) expect(error && [error, text]).toBeUndefined();
  return calls.length;
}

test.each(FORMATS)(
  '%s: an untrained model calls validly; turns without the constraint draw as ever beside it',
  (format) =>
    withGpu(async () => {
      const gpu = await testGpu();
      const engine = new WgslRolloutEngine(gpu, tinyModel(gpu, { vocabSize: V, numHiddenLayers: 1 }), sizes, {
        vocabulary: () => vocabulary,
      });
      const free = (s: number) => request(s, format, { toolCalls: [], logitBias: [] });
      const plain = await Promise.all([8, 9].map((s) => engine.generate(free(s))));
      for (const s of [8, 9]) engine.release(`${s}`);
      const together = await Promise.all(
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map((s) => engine.generate(s < 8 ? request(s, format) : free(s))),
      );
      for (const generation of together.slice(0, 8)) expect(checkCalls(generation, format)).toBeGreaterThan(0);
      expect(together.slice(8)).toEqual(plain);
      const [first] = together;
      // The next turn continues in the KV cache, and can call a tool again.
      const contextIds = Uint32Array.from([...prompt, ...first.tokenIds, ...tokenizer.encode('ok')]);
      expect(checkCalls(await engine.generate({ ...request(0, format), contextIds }), format)).toBeGreaterThan(0);
    }),
);

test('a turn of an untrained model that must be a call or JSON is one, and stops', () =>
  withGpu(async () => {
    const gpu = await testGpu();
    const engine = new WgslRolloutEngine(gpu, tinyModel(gpu, { vocabSize: V, numHiddenLayers: 1 }), sizes, {
      vocabulary: () => vocabulary,
    });
    const jsonSchema = { type: 'object', properties: { answer: { type: 'integer' } }, required: ['answer'] };
    const forced = [{ requiredCalls: 'one' }, { toolCalls: [], jsonSchema }] satisfies Partial<SamplingParams>[];
    for (const [kind, more] of forced.entries()) {
      const turns = [0, 1, 2, 3].map((s) =>
        engine.generate(request(4 * kind + s, 'hermes', { logitBias: [], minNewTokens: LEFT - 1, ...more })),
      );
      for (const generation of await Promise.all(turns)) {
        const text = tokenizer.decode(generation.tokenIds, { skipSpecialTokens: true });
        expect(generation.stopReason).toBe('stop');
        if (kind === 0) expect(checkCalls(generation, 'hermes')).toBe(1);
        else expect(JSON.parse(text)).toEqual({ answer: anyNumber });
      }
    }
  }));

test.each(FORMATS)(
  '%s: the log-prob is the trainer’s to the bit, minus the mass that of the draw among what was allowed',
  (format) =>
    withGpu(async () => {
      const gpu = await testGpu();
      const model = tinyModel(gpu, { vocabSize: V, numHiddenLayers: 1 });
      const engine = new WgslRolloutEngine(gpu, model, sizes, { vocabulary: () => vocabulary });
      const trainer = new WgslEngine(gpu, model, 1024);
      const temperature = 0.9;
      const { tokenIds, logProbs, logMass } = await engine.generate(request(3, format));
      const sample = { tokens: tokenIds, mask: new Uint8Array(tokenIds.length).fill(1) };
      for (const { batch, entryPosition } of packGroups([{ prompt, samples: [sample] }], 1024))
        (await trainer.logProbs(batch, { temperature })).logProbs.forEach((logProb, e) =>
          expect(logProb).toBe(logProbs[entryPosition[e]]),
        );
      const guide = new CallGuide({ toolCalls, toolCallFormat: format }, vocabulary, V);
      let state = guide.start;
      for (const [t, token] of tokenIds.entries()) {
        const mask = guide.mask(state, LEFT - t);
        state = guide.after(state, token);
        if (t % 12 !== 2) continue;
        // Compute the probability of every token at this position, with one sample per token.
        const context = Uint32Array.from([...prompt, ...tokenIds.subarray(0, t)]);
        const samples = Array.from({ length: V }, (_, j) => ({ tokens: Uint32Array.of(j), mask: Uint8Array.of(1) }));
        const whole = new Float64Array(V);
        for (const { batch, entrySample } of packGroups([{ prompt: context, samples }], 1024))
          (await trainer.logProbs(batch, { temperature })).logProbs.forEach(
            (logProb, e) => (whole[entrySample[e]] = logProb),
          );
        const biased = whole.map((logProb, j) => logProb + (j === opens(format) ? 30 / temperature : 0));
        const allowed = (j: number) => !mask || (mask[j >>> 5] >>> (j & 31)) & 1;
        const mass = biased.reduce((sum, logProb, j) => sum + (allowed(j) ? Math.exp(logProb) : 0), 0);
        expect(allowed(token)).toBeTruthy();
        expect(Math.abs(logProbs[t] - logMass![t] - (biased[token] - Math.log(mass)))).toBeLessThan(5e-5);
      }
    }),
);

test('guesses are checked in calls, too: the same tokens, log-probs and masses in fewer read-backs', () =>
  withGpu(async () => {
    const gpu = await testGpu();
    const model = tinyModel(gpu, { vocabSize: V, numHiddenLayers: 1 });
    const speculative = { maxDraftTokens: 8, minNgram: 2, history: 8, adapt: false };
    const engineOf = (more: object) =>
      new WgslRolloutEngine(gpu, model, { ...sizes, verifyRows: 64 }, { vocabulary: () => vocabulary, ...more });
    const ask = async (engine: WgslRolloutEngine) => {
      const generations = await Promise.all([0, 1, 2, 3].map((s) => engine.generate(request(s, 'hermes'))));
      for (const s of [0, 1, 2, 3]) engine.release(`${s}`);
      const { generatedTokens, decodeSteps } = await engine.takeStats();
      return { generations, tokensAPass: generatedTokens / decodeSteps / generations.length };
    };
    const plain = await ask(engineOf({}));
    const guessing = engineOf({ speculative });
    const first = await ask(guessing);
    const again = await ask(guessing); // the history contains its tokens
    expect(first.generations).toEqual(plain.generations);
    expect(again.generations).toEqual(plain.generations);
    for (const generation of again.generations) expect(checkCalls(generation, 'hermes')).toBeGreaterThan(0);
    expect(plain.tokensAPass).toBeCloseTo(1, 1);
    expect(again.tokensAPass).toBeGreaterThan(2.5);
  }));
