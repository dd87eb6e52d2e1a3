/** Tests constrained tool calls: the grammar of a call, the tokens it allows next, and a scheduler that uses both. */
import { readFileSync } from 'node:fs';
import { describe, expect, test, vi } from 'vitest';
import { tokenBytes, vocabularyOf } from '../../src/model/tokenizer/vocabulary.ts';
import { ByteAutomaton, DEAD } from '../../src/extensions/constrained/byteAutomaton.ts';
import { CallGuide } from '../../src/extensions/constrained/guide.ts';
import { guidesFor } from '../../src/extensions/constrained/guides.ts';
import { TokenTrie } from '../../src/extensions/constrained/trie.ts';
import { type Preemption, RolloutServer } from '../../src/rollout/server/server.ts';
import { toolCallGrammar } from '../../src/extensions/constrained/toolGrammar.ts';
import {
  parseGlm,
  parseHermes,
  parseLlama3Json,
  parseQwenXml,
  type ToolParser,
} from '../../src/rollout/tools/parser.ts';
import type {
  CallableTool,
  CallFormat,
  GenerateRequest,
  Generation,
  SamplingParams,
  TurnConstraint,
} from '../../src/rollout/types.ts';
import { defineTool, type Tool } from '../../src/tasks/tool.ts';
import { type ArgumentSchema, valueProblem } from '../../src/tasks/toolSchema.ts';
import { calculator } from '../../src/tasks/tools/calculator.ts';
import { rng } from '../random.ts';
import { run, ScriptedTurns, tokenizer } from '../scriptedTurns.ts';
import { ModelSlotDecoder } from '../slotDecoder.ts';
import { stub } from '../stub.ts';

const toolOf = (name: string, properties: Record<string, ArgumentSchema>, required: string[] = []): Tool => ({
  name,
  description: '',
  parameters: { type: 'object', properties, required },
  execute: () => '',
});
const TOOLS: Tool[] = [
  toolOf('search', { query: { type: 'string' }, top: { type: 'integer', minimum: 1, maximum: 9 } }, ['query']),
  toolOf('order', {
    size: { type: 'string', enum: ['S', 'M', '<t'] },
    count: { type: 'integer' },
    gift: { type: 'boolean' },
    price: { type: 'number', minimum: 0 },
    note: { type: 'string', maxLength: 3 },
    nothing: { type: 'null' },
  }),
  toolOf('plan', {
    steps: { type: 'array', items: { type: 'object', properties: { x: { type: 'number' } }, required: ['x'] } },
    any: { type: 'array' },
  }),
  toolOf('stop', {}),
];

const callable: CallableTool[] = TOOLS.map(({ name, parameters }) => ({ name, parameters }));
const automata = {
  hermes: new ByteAutomaton(toolCallGrammar(callable)),
  qwen3_coder: new ByteAutomaton(toolCallGrammar(callable, 'qwen3_coder')),
  glm: new ByteAutomaton(toolCallGrammar(callable, 'glm')),
  llama3_json: new ByteAutomaton(toolCallGrammar(callable, 'llama3_json')),
};

/** True if a text completes a call that has started; for Llama 3, if it completes a turn. */
function accepts(
  body: string | Uint8Array,
  format: CallFormat = 'hermes',
  automaton: ByteAutomaton = automata[format],
): boolean {
  let state = automaton.start;
  for (const byte of typeof body === 'string' ? new TextEncoder().encode(body) : body) {
    if (state === DEAD) return false;
    state = automaton.next(state, byte);
  }
  return state !== DEAD && automaton.isEnd(state);
}
const call = (name: string, args: string) => `{"name": "${name}", "arguments": ${args}}</tool_call>`;

test('many texts whose grammar would be too large are refused', () => {
  const texts = Array.from({ length: 99 }, () => ({ type: 'string' as const, maxLength: 512 }));
  const schema: ArgumentSchema = { type: 'array', items: { anyOf: texts } };
  expect(() => new ByteAutomaton(toolCallGrammar([toolOf('f', { a: schema })]))).toThrow(
    'has more than 200000 nodes. Give fewer or smaller values',
  );
});

describe('the grammar of a call', () => {
  test.each([
    call('search', '{"query": "x"}'),
    call('search', '{"query": "x", "top": 9}'),
    '\n{"name":"search","arguments":{"query":"x","top":1}}\n</tool_call>',
    call('search', '{"query": ""}'),
    call('search', '{"query": "caf\u00e9 \u{1f600} \u20ac a < b <= c <"}'),
    call('search', String.raw`{"query": "\"\\\/\b\n\u00e9<\u0074ool_call>"}`),
    call('order', '{}'),
    call(
      'order',
      String.raw`{"size": "\u003ct", "count": -12, "gift": true, "price": 1.5e-3, "note": "abc", "nothing": null}`,
    ),
    call('order', '{"count": 0}'),
    call('order', '{"gift": false, "note": ""}'),
    call('plan', '{"steps": []}'),
    call('plan', '{"steps": [{"x": 1}, {"x": -0.5}], "any": ["a", 1, true, null]}'),
    call('stop', '{}'),
  ])('has %s', (body) => {
    expect(accepts(body)).toBe(true);
    expect(parseHermes(`<tool_call>${body}`, TOOLS)[0].error).toBeUndefined();
  });

  test.each([
    ['an unknown tool', call('find', '{}')],
    ['a missing argument', call('search', '{}')],
    ['an unknown argument', call('stop', '{"a": 1}')],
    ['a wrong type', call('search', '{"query": 1}')],
    ['a number out of range', call('search', '{"query": "x", "top": 10}')],
    ['a negative where the least is 0', call('order', '{"price": -1}')],
    ['a choice that is none', call('order', '{"size": "L"}')],
    ['a fraction for an integer', call('order', '{"count": 1.5}')],
    ['a leading zero', call('order', '{"count": 01}')],
    ['too long a text', call('order', '{"note": "abcd"}')],
    ['a comma too many', call('search', '{"query": "x",}')],
    ['a closing tag in a text', call('search', '{"query": "</tool_call>"}')],
    ['an opening tag in a text', call('search', '{"query": "a<<tool_call>"}')],
    ['a line break in a text', call('search', '{"query": "a\nb"}')],
    ['half a call', '{"name": "stop"'],
    ['a call without its tag', '{"name": "stop", "arguments": {}}'],
    ['something after it', call('stop', '{}') + ' '],
  ])('has not %s', (_, body) => expect(accepts(body)).toBe(false));

  test.each([
    ['string', '"text"'],
    ['integer', '-3'],
    ['number', '-1.5'],
    ['array', '[1]'],
    ['object', '{"a": 1}'],
  ])('has any %s if the bounds of the schema are null', (type, value) => {
    const bounds = ['minimum', 'maximum', 'minLength', 'maxLength', 'minItems', 'maxItems', 'additionalProperties'];
    const schema = { type, ...Object.fromEntries(bounds.map((keyword) => [keyword, null])) } as ArgumentSchema;
    const tools = [defineTool(toolOf('f', { x: schema }))];
    const body = call('f', `{"x": ${value}}`);
    expect(accepts(body, 'hermes', new ByteAutomaton(toolCallGrammar(tools)))).toBe(true);
    expect(parseHermes(`<tool_call>${body}`, tools)[0].error).toBeUndefined();
  });

  test('texts are valid UTF-8', () => {
    const [before, after] = call('search', '{"query": "|"}')
      .split('|')
      .map((s) => [...new TextEncoder().encode(s)]);
    const within = (...bytes: number[]) => accepts(Uint8Array.from([...before, ...bytes, ...after]));
    expect(within(0xc3, 0xa9)).toBe(true);
    expect(within(0xf4, 0x8f, 0xbf, 0xbf)).toBe(true);
    for (const wrong of [[0xc3], [0xa9], [0xc0, 0xaf], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xff]])
      expect(within(...wrong)).toBe(false);
  });
});

describe('the language of a Qwen3-coder call', () => {
  const xml = (name: string, args: Record<string, string>, line = '\n') => {
    const parameters = Object.entries(args).map(
      ([key, value]) => `<parameter=${key}>${line}${value}${line}</parameter>${line}`,
    );
    return `${line}<function=${name}>${line}${parameters.join('')}</function>${line}</tool_call>`;
  };
  test.each([
    xml('search', { query: 'who is "x" \\ caf\u00e9 \u{1f600}?', top: '9' }),
    xml('search', { query: 'two\n\tlines with a < b <<' }),
    xml('search', { query: 'x' }, ''),
    xml('search', { query: '' }),
    xml('order', { size: 'M', count: '-3', gift: 'true', price: '1.5', note: 'abc', nothing: 'null' }),
    xml('plan', { steps: '[{"x": 1}]', any: '["a", 1]' }),
    xml('stop', {}),
  ])('has %s', (body) => {
    expect(accepts(body, 'qwen3_coder')).toBe(true);
    const [parsed] = parseQwenXml(`<tool_call>${body}`, TOOLS);
    expect(parsed.error).toBeUndefined();
    const said = (body.match(/<parameter=query>\n?([^]*?)\n?<\/parameter>/) ?? [])[1];
    expect(parsed.error === undefined && parsed.args['query']).toEqual(said);
  });

  test.each([
    ['an unknown tool', xml('find', {})],
    ['a missing argument', xml('search', {})],
    ['an unknown argument', xml('stop', { a: '1' })],
    ['a wrong type', xml('order', { count: 'two' })],
    ['a number out of range', xml('search', { query: 'x', top: '10' })],
    ['a choice that is none', xml('order', { size: 'L' })],
    ['a choice that would end the call', xml('order', { size: '<t' })],
    ['too long a text', xml('order', { note: 'abcd' })],
    ['a closing tag in a text', xml('search', { query: 'a</parameter>' })],
    ['half a call', '<function=stop>'],
    ['JSON', call('stop', '{}')],
  ])('has not %s', (_, body) => expect(accepts(body, 'qwen3_coder')).toBe(false));

  test('names that the format cannot write are refused with one error message', () => {
    const grammar = (tool: Tool) => new ByteAutomaton(toolCallGrammar([tool], 'qwen3_coder'));
    expect(() => grammar(toolOf('a b', {}))).toThrow('Tool "a b": the name "a b" has ">" or a space');
    const tags = { x: { type: 'string', enum: ['</a'] } };
    expect(() => grammar(toolOf('a', tags))).toThrow('Tool "a": no choice of "x" can be written in format qwen3_coder');
  });
});

describe('the language of a GLM call', () => {
  const glm = (name: string, args: Record<string, string>, line = '\n') => {
    const pairs = Object.entries(args).map(
      ([key, value]) => `<arg_key>${key}</arg_key>${line}<arg_value>${value}</arg_value>${line}`,
    );
    return `${name}${line}${pairs.join('')}</tool_call>`;
  };
  test.each([
    glm('search', { query: 'who is "x" \\ caf\u00e9?\n\t', top: '9' }),
    glm('search', { query: 'a < b' }, ''),
    glm('order', { size: 'M', count: '-3', gift: 'true', price: '1.5', note: 'abc', nothing: 'null' }),
    glm('plan', { steps: '[{"x": 1}]', any: '["a", 1]' }),
    glm('stop', {}),
  ])('has %s', (body) => {
    expect(accepts(body, 'glm')).toBe(true);
    const [parsed] = parseGlm(`<tool_call>${body}`, TOOLS);
    expect(parsed.error).toBeUndefined();
    const said = (body.match(/query<\/arg_key>\n?<arg_value>([^]*?)<\/arg_value>/) ?? [])[1];
    expect(parsed.error === undefined && parsed.args['query']).toEqual(said);
  });

  test.each([
    ['an unknown tool', glm('find', {})],
    ['a missing argument', glm('search', {})],
    ['an unknown argument', glm('stop', { a: '1' })],
    ['a wrong type', glm('order', { count: 'two' })],
    ['a choice that is none', glm('order', { size: 'L' })],
    ['a closing tag in a text', glm('search', { query: 'a</arg_value>' })],
    ['half a call', 'stop'],
  ])('has not %s', (_, body) => expect(accepts(body, 'glm')).toBe(false));

  test('a name that the format cannot write is refused with one error message', () => {
    expect(() => toolCallGrammar([toolOf('a<b', {})], 'glm')).toThrow('Tool "a<b": the name "a<b" has "<" or a space');
  });
});

describe('the language of a Llama 3 turn', () => {
  const llama = (name: string, args: string) => `{"name": "${name}", "parameters": ${args}}`;
  test.each([
    [llama('stop', '{}'), 1],
    ['\n {"name":"search","parameters":{"query":"x; y","top":1}}', 1],
    [`${llama('stop', '{}')}; ${llama('order', '{"gift": true}')};${llama('stop', '{}')}`, 3],
    ['The answer is {"name": "stop"}.', 0],
    ['', 0],
    ['\n', 0],
  ])('has %s', (body, calls) => {
    expect(accepts(body, 'llama3_json')).toBe(true);
    expect(parseLlama3Json(body, TOOLS).map(({ error }) => error)).toEqual(new Array(calls).fill(undefined));
  });

  test.each([
    ['another key', '{"name": "stop", "arguments": {}}'],
    ['an unknown tool', llama('find', '{}')],
    ['other JSON', '{"a": 1}'],
    ['half a call', '{"name": "stop"'],
    ['text after a call', `${llama('stop', '{}')} and`],
    ['half a second call', `${llama('stop', '{}')}; `],
  ])('has not %s', (_, body) => expect(accepts(body, 'llama3_json')).toBe(false));
});

const vocabulary = vocabularyOf(JSON.parse(readFileSync('checkpoints/gsm8k-tool/tokenizer.json', 'utf8')) as unknown);
const V = tokenizer.vocabSize + 8; // a model's embedding can have rows without a token
const [TAG] = tokenizer.encode('<tool_call>');
const EOS = tokenizer.eosTokenIds[0];
const tokensIn = (mask: Uint32Array | undefined): number[] => {
  const tokens = [];
  for (let t = 0; t < V; t++) if (!mask || (mask[t >>> 5] >>> (t & 31)) & 1) tokens.push(t);
  return tokens;
};

describe('tokens that can come next', () => {
  const guide = new CallGuide({ toolCalls: callable }, vocabulary, V);

  /** Returns the tokens with bytes that `after` accepts. One assertion per token would take seconds. */
  const followers = (state: number) =>
    tokensIn(undefined).filter((token) => {
      if (tokenBytes(vocabulary, token).length === 0) return false;
      try {
        guide.after(state, token);
        return true;
      } catch (error) {
        if (String(error).includes('which no valid tool call has at this position')) return false;
        throw error;
      }
    });

  test('all tokens are allowed in free text, and in a call those that keep it valid', () => {
    expect(guide.mask(guide.start, 1000)).toBeUndefined();
    const r = rng(4);
    let state = guide.after(guide.start, TAG);
    for (let n = 0; n < 20; n++) {
      const allowed = new Set(tokensIn(guide.mask(state, 1000)));
      expect(allowed.size).toBeGreaterThan(0);
      expect(followers(state)).toEqual([...allowed]);
      expect(allowed.has(EOS)).toBe(false);
      expect(allowed.has(V - 1)).toBe(false);
      const next = [...allowed][Math.floor(r.uniform() * allowed.size)];
      state = guide.after(state, next);
      if (guide.mask(state, 1000) === undefined) state = guide.after(guide.start, TAG);
    }
  });

  test.each([16, 20, 30, 80])('sampled at random with %i tokens left, a call is valid and complete', (left) => {
    const r = rng(left);
    const names = new Set<string>();
    for (let sample = 0; sample < 20; sample++) {
      const ids: number[] = [];
      let state = guide.start;
      while (ids.length < left) {
        const allowed = tokensIn(guide.mask(state, left - ids.length));
        const token = allowed.includes(TAG) ? TAG : allowed[Math.floor(r.uniform() * allowed.length)];
        ids.push(token);
        state = guide.after(state, token);
      }
      const text = tokenizer.decode(ids, { skipSpecialTokens: true });
      const calls = parseHermes(text, TOOLS);
      expect(calls.length).toBeGreaterThan(0);
      for (const { error } of calls) expect(error && [error, text]).toBeUndefined();
      for (const parsed of calls) if (parsed.error === undefined) names.add(parsed.name);
    }
    if (left > 20) expect(names.size).toBe(TOOLS.length);
  });

  test.each<[CallFormat, ToolParser, string]>([
    ['qwen3_coder', parseQwenXml, '<tool_call>'],
    ['glm', parseGlm, '<tool_call>'],
    ['llama3_json', parseLlama3Json, '{'],
  ])('in format %s, too, a call drawn at random is valid and complete', (format, parser, opens) => {
    const other = new CallGuide({ toolCalls: callable, toolCallFormat: format }, vocabulary, V);
    const [OPEN] = tokenizer.encode(opens);
    const r = rng(5);
    const names = new Set<string>();
    for (let sample = 0; sample < 60; sample++) {
      const ids: number[] = [];
      let state = other.start;
      while (ids.length < 90) {
        const allowed = tokensIn(other.mask(state, 90 - ids.length));
        const token = allowed.includes(OPEN) ? OPEN : allowed[Math.floor(r.uniform() * allowed.length)];
        if (token === EOS) break;
        ids.push(token);
        state = other.after(state, token);
      }
      const text = tokenizer.decode(ids, { skipSpecialTokens: true });
      const calls = parser(text, TOOLS);
      expect(calls.length).toBeGreaterThan(0);
      for (const { error } of calls) expect(error && [error, text]).toBeUndefined();
      for (const parsed of calls) if (parsed.error === undefined) names.add(parsed.name);
    }
    expect(names.size).toBe(TOOLS.length);
  });

  test('more than one token is usually allowed, because a text has many tokenisations', () => {
    const { name, parameters } = calculator;
    const one = new CallGuide({ toolCalls: [{ name, parameters }] }, vocabulary, V);
    let state = one.start;
    const counts = tokenizer
      .encode('<tool_call>\n{"name": "calculator", "arguments": {"expression": "')
      .map((token) => {
        const count = tokensIn(one.mask(state, 1000)).length;
        state = one.after(state, token);
        return count;
      });
    const runs = counts
      .map((n) => (n === 1 ? '1' : ' '))
      .join('')
      .split(' ');
    expect(counts.slice(1)).toHaveLength(33);
    expect(counts.filter((n) => n === 1)).toHaveLength(9);
    expect(Math.max(...runs.map(({ length }) => length))).toBe(3);
  });

  test('no call is started that cannot be ended; if one is too late to end, all tokens are allowed', () => {
    expect(tokensIn(guide.mask(guide.start, 3))).not.toContain(TAG);
    const state = guide.after(guide.start, TAG);
    expect(guide.mask(state, 1)).toEqual(guide.mask(state, 1000));
  });

  test('a vocabulary that cannot write a call is detected', () => {
    const letters = { bytes: Uint8Array.of(0x61, 0x3c), starts: Uint32Array.of(0, 1, 2) };
    const tag = { bytes: new TextEncoder().encode('<tool_call>a'), starts: Uint32Array.of(0, 11, 12) };
    expect(new CallGuide({ toolCalls: callable }, letters, 2).mask(0, 9)).toBeUndefined();
    const broken = new CallGuide({ toolCalls: callable }, tag, 2);
    expect(() => broken.mask(broken.after(0, 0), 9)).toThrow(
      'The tokenizer has no token that could continue a valid tool call',
    );
  });
});

describe('a turn that must be calls or JSON', () => {
  const schema: ArgumentSchema = {
    type: 'object',
    properties: { answer: { type: 'integer' }, unit: { enum: ['m', 's'] } },
    required: ['answer'],
  };
  /** Samples a turn at random from the allowed tokens, with at most `left` tokens. */
  const drawn = (forced: CallGuide, left: number, seed: number) => {
    const r = rng(seed);
    const ids: number[] = [];
    let state = forced.start;
    while (ids.length < left && ids.at(-1) !== EOS) {
      const allowed = tokensIn(forced.mask(state, left - ids.length));
      ids.push(allowed[Math.floor(r.uniform() * allowed.length)]);
      state = forced.after(state, ids.at(-1)!);
    }
    expect(ids.at(-1)).toBe(EOS);
    return tokenizer.decode(ids, { skipSpecialTokens: true });
  };
  const forcedTo = (one: TurnConstraint) => new CallGuide({ ...one, stopTokenIds: [EOS] }, vocabulary, V);
  const seeds = Array.from({ length: 20 }, (_, seed) => seed);

  test.each<[CallFormat, ToolParser]>([
    ['hermes', parseHermes],
    ['qwen3_coder', parseQwenXml],
    ['glm', parseGlm],
    ['llama3_json', parseLlama3Json],
  ])('%s: a required call is all that the turn has, and ends in time', (toolCallFormat, parser) => {
    for (const requiredCalls of ['one', 'some'] as const) {
      const forced = forcedTo({ toolCalls: callable, toolCallFormat, requiredCalls });
      for (const seed of seeds) {
        const text = drawn(forced, 90, seed);
        const calls = parser(text, TOOLS);
        for (const { error } of calls) expect(error && [error, text]).toBeUndefined();
        if (requiredCalls === 'one') expect(calls).toHaveLength(1);
        expect(calls.length).toBeGreaterThan(0);
        if (toolCallFormat !== 'llama3_json') expect(text).toMatch(/^<tool_call>[^]*<\/tool_call>$/);
      }
    }
  });

  test('JSON fits its schema, and beside tools a turn is JSON or calls', () => {
    const ofSchema = forcedTo({ jsonSchema: schema });
    const free = forcedTo({ jsonSchema: { type: 'object' } });
    const withTools = forcedTo({ jsonSchema: schema, toolCalls: callable });
    for (const seed of seeds) {
      expect(valueProblem(JSON.parse(drawn(ofSchema, 40, seed)), schema)).toBeNull();
      expect(JSON.parse(drawn(free, 60, seed))).toBeTypeOf('object');
      const either = drawn(withTools, 60, seed);
      if (either.startsWith('<')) expect(parseHermes(either, TOOLS)[0].error).toBeUndefined();
      else expect(valueProblem(JSON.parse(either), schema)).toBeNull();
    }
  });

  test('positions in a long text share their sets of tokens, and the masks are those of a guide that shares none', () => {
    const text = (maxLength: number) => forcedTo({ jsonSchema: { type: 'string', maxLength } });
    const [long, quote, letter] = [text(400), tokenizer.encode('"')[0], tokenizer.encode('a')[0]];
    const bytesAfter = (letters: number) => {
      let state = long.after(long.start, quote);
      for (let i = 0; i < letters; i++) state = long.after(state, letter);
      long.mask(state, 1000);
      return long.cachedBytes;
    };
    const few = bytesAfter(0);
    expect(few).toBeGreaterThan(0);
    for (let letters = 1; letters < 380; letters++) expect(bytesAfter(letters)).toBe(few);
    // Near its end the text takes fewer tokens, as one that is short from the start.
    for (const left of [0, 1, 2, 5]) {
      const short = text(left);
      const other = short.after(short.start, quote);
      let state = long.after(long.start, quote);
      for (let i = 0; i < 400 - left; i++) state = long.after(state, letter);
      for (const tokens of [2, 3, 1000]) expect(long.mask(state, tokens)).toEqual(short.mask(other, tokens));
    }
  });

  test('guides of other constraints are dropped once all have too many bytes', () => {
    const walk = vi.spyOn(TokenTrie.prototype, 'walk');
    const walks = (maxBytes: number) => {
      const start = guidesFor(vocabulary, V, maxBytes);
      const use = (value: number) => {
        walk.mockClear();
        start(stub<SamplingParams>({ jsonSchema: { enum: [value] }, stopTokenIds: [EOS] })).mask(9);
        return walk.mock.calls.length > 0;
      };
      return [use(1), use(1), use(2), use(1)];
    };
    expect(walks(1)).toEqual([true, false, true, true]);
    expect(walks(1e6)).toEqual([true, false, true, false]);
    walk.mockRestore();
  });

  test('only end tokens of the turn can follow; a model without one is refused', () => {
    const forced = new CallGuide({ jsonSchema: { enum: [1] }, stopTokenIds: [EOS] }, vocabulary, V);
    const state = forced.after(forced.start, tokenizer.encode('1')[0]);
    expect(tokensIn(forced.mask(state, 9))).toEqual([EOS]);
    expect(() => new CallGuide({ jsonSchema: {}, stopTokenIds: [TAG] }, vocabulary, V)).toThrow('needs an end token');
  });
});

describe('scheduler', () => {
  const SIZES = { maxNumSeqs: 4, slotCapacity: 200, maxPrompts: 4, maxPromptLength: 20, maxBatchedTokens: 64 };
  const request = (s: number): GenerateRequest => ({
    requestId: `${s}`,
    contextIds: Uint32Array.of(1, 2, 3),
    promptLength: 3,
    key: [7, s] as const,
    sampling: {
      temperature: 1,
      topK: 0,
      topP: 1,
      minP: 0,
      maxNewTokens: 60,
      stopTokenIds: [EOS],
      toolCalls: callable,
      logitBias: [[TAG, 100]],
    },
  });
  const serverOf = (maxNumSeqs: number, preemption: Preemption = 'latest', speculative = false) =>
    new RolloutServer(new ModelSlotDecoder({ ...SIZES, maxNumSeqs }, V), {
      preemption,
      vocabulary: () => vocabulary,
      ...(speculative && { speculative: { maxDraftTokens: 4, minNgram: 1, history: 4, adapt: false } }),
    });

  test('every call is valid; alone, together, preempted in the middle of one, beside guessing', async () => {
    const requests = Array.from({ length: 6 }, (_, s) =>
      s % 3 === 2 ? { ...request(s), sampling: { ...request(s).sampling, toolCalls: [], logitBias: [] } } : request(s),
    );
    const twoTurns = async (server: RolloutServer, q: GenerateRequest): Promise<Generation[]> => {
      const first = await server.generate(q);
      const contextIds = Uint32Array.from([...q.contextIds, ...first.tokenIds, 9, 8]);
      const second = await server.generate({ ...q, contextIds });
      server.release(q.requestId);
      return [first, second];
    };
    const want: Generation[][] = [];
    for (const q of requests) want.push(await twoTurns(serverOf(4), q));
    for (const [s, { tokenIds, stopReason }] of want.flat().map((g, i) => [i >> 1, g] as const)) {
      if (s % 3 === 2) continue;
      const text = tokenizer.decode(tokenIds, { skipSpecialTokens: true });
      const calls = parseHermes(text, TOOLS);
      expect(calls.length).toBeGreaterThan(0);
      for (const { error } of calls) expect(error && [error, text]).toBeUndefined();
      expect(['stop', 'length']).toContain(stopReason);
    }
    for (const server of [serverOf(4), serverOf(1), serverOf(2, 'latest', true)])
      expect(await Promise.all(requests.map((q) => twoTurns(server, q)))).toEqual(want);
  });
});

test('an agent loop requests constraints only if there are tools', async () => {
  const ask = async (tools: Tool[], constrainToolCalls: boolean) => {
    const engine = new ScriptedTurns(['#### 1']);
    await run([], { engine, tools, constrainToolCalls });
    return engine.requests[0].sampling.toolCalls;
  };
  const { name, parameters } = calculator;
  expect(await ask([calculator], true)).toEqual([{ name, parameters }]);
  expect(await ask([calculator], false)).toBeUndefined();
  expect(await ask([], true)).toBeUndefined();
});

test('only a parser that names its call format can be constrained, to that format', async () => {
  const own: ToolParser = (text, tools) => parseLlama3Json(text, tools);
  const input = { tools: [calculator], constrainToolCalls: true, toolParser: own };
  await expect(run([], { ...input, engine: new ScriptedTurns(['#### 1']) })).rejects.toThrow(
    'constrainToolCalls is on, but the tool parser has no callFormat, so the format of its calls is unknown. ' +
      'Set it to the format it reads (hermes, llama3_json, qwen3_coder, glm), or turn constrainToolCalls off.',
  );
  own.callFormat = 'llama3_json';
  const engine = new ScriptedTurns(['#### 1']);
  await run([], { ...input, engine });
  expect(engine.requests[0].sampling.toolCallFormat).toBe('llama3_json');
});
