/** Tests OpenAI's /v1/responses and Anthropic's /v1/messages: both are translated to the trajectory of /v1/chat/completions. */

import { describe, expect, test } from 'vitest';
import { InputError } from '../../src/errors.ts';
import { anthropicError, ApiError, KeptResponses } from '../../src/extensions/client/index.ts';
import { tokenizer } from '../scriptedTurns.ts';
import { callsCalculator, servedRun } from '../servedRun.ts';
import { containing } from '../stub.ts';

const PARAMETERS = { type: 'object', properties: { expression: { type: 'string' } }, required: ['expression'] };
const QUESTION = 'What is 6 times 7?';

interface Answer {
  id: string;
  output: { id: string; type: string; call_id: string; content: { text: string }[] }[];
  content: { type: string; id: string; text: string; input: unknown }[];
  [field: string]: unknown;
}

async function apis(options: Parameters<typeof servedRun>[0] = {}) {
  const run = await servedRun(options);
  const post = async (path: string, body: object, headers: Record<string, string> = {}) => {
    const init = { method: 'POST', headers: { 'content-type': 'application/json', ...headers } };
    const response = await fetch(`${run.url}/v1${path}`, { ...init, body: JSON.stringify(body) });
    return { status: response.status, json: (await response.json()) as Answer };
  };
  /** Returns the events of a stream: names, and data. */
  const stream = async (path: string, body: object) => {
    const init = { method: 'POST', headers: { 'content-type': 'application/json' } };
    const response = await fetch(`${run.url}/v1${path}`, { ...init, body: JSON.stringify({ ...body, stream: true }) });
    expect(response.headers.get('content-type')).toBe('text/event-stream');
    const events = (await response.text()).trimEnd().split('\n\n');
    return events.map((event) => {
      const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(event)!;
      const read = JSON.parse(data) as Record<string, never> & { type: string };
      expect(read.type).toBe(name);
      return read;
    });
  };
  const reward = (id: string) => post('/rewards', { id, reward: 1 });
  const counts = () => run.groups.save().then((state) => (state as { counts: object }).counts);
  return { ...run, post, stream, reward, counts };
}

describe('/v1/messages', () => {
  const TOOLS = [{ name: 'calculator', description: 'Computes.', input_schema: PARAMETERS }];
  const ASKED = { model: 'talking', max_tokens: 100, messages: [{ role: 'user', content: QUESTION }] };

  test('a tool loop is one continued trajectory, the same as by chat completions', async () => {
    const { post, rollout, reward, counts, groups } = await apis();
    rollout.says = callsCalculator;
    const asked = { ...ASKED, system: [{ type: 'text', text: 'Be brief.' }], tools: TOOLS };
    const { json: first } = await post('/messages', asked);
    expect(first).toMatchObject({
      type: 'message',
      role: 'assistant',
      model: 'talking',
      stop_reason: 'tool_use',
      stop_sequence: null,
      content: [{ type: 'tool_use', name: 'calculator', input: { expression: '6*7' } }],
      usage: { cache_read_input_tokens: 0 },
    });
    const result = { type: 'tool_result', tool_use_id: first.content[0].id, content: [{ type: 'text', text: '42' }] };
    const messages = [
      ...ASKED.messages,
      { role: 'assistant', content: first.content },
      { role: 'user', content: [result] },
    ];
    const { json: second } = await post('/messages', { ...asked, messages });
    expect(second).toMatchObject({ stop_reason: 'end_turn', content: [{ type: 'text', text: 'It is 42.' }] });
    expect(await counts()).toEqual({ 'client/calls': 2, 'client/continuations': 1 });
    const tools = TOOLS.map(({ input_schema: parameters, ...tool }) => ({
      type: 'function',
      function: { ...tool, parameters },
    }));
    const chat = [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: QUESTION },
    ];
    await post('/t/g/other/chat/completions', { messages: chat, tools });
    const [once, , again] = rollout.requests;
    expect(again.contextIds).toEqual(once.contextIds);
    expect((await reward(second.id)).status).toBe(200);
    expect(groups.episodes[0].rows()[0].trajectory.numTurns).toBe(2);
  });

  test.each([
    ['a text', () => 'Four.', ['text']],
    ['a call', callsCalculator, ['tool_use']],
    [
      'a text and two calls',
      () => `Well. ${callsCalculator({ contextIds: Uint32Array.of() }).repeat(2)}`,
      ['text', 'tool_use', 'tool_use'],
    ],
    ['nothing', () => '', ['text']],
  ] as const)('the events of %s are those of Anthropic, and add up to the whole answer', async (_, says, types) => {
    const { post, stream, rollout } = await apis();
    rollout.says = says;
    const asked = { ...ASKED, tools: TOOLS };
    const events = await stream('/t/g/a/messages', asked);
    const blocks = types.flatMap(() => ['content_block_start', 'content_block_delta', 'content_block_stop']);
    const names = events.map(({ type }) => type).filter((type, i, all) => type !== all[i - 1]);
    const isEmpty = says({ contextIds: Uint32Array.of() }) === '';
    expect(names).toEqual([
      'message_start',
      ...blocks.filter((type) => !isEmpty || type !== 'content_block_delta'),
      'message_delta',
      'message_stop',
    ]);
    const { json: whole } = await post('/t/g/b/messages', asked);
    expect(events.filter(({ type }) => type === 'content_block_start').map(({ index }) => index)).toEqual(
      types.map((__, i) => i),
    );
    const content = types.map((type, i) => {
      const deltas = events.filter((event) => event.type === 'content_block_delta' && event['index'] === i);
      const text = deltas.map(({ delta }) => (type === 'text' ? delta['text'] : delta['partial_json'])).join('');
      return type === 'text' ? { type, text } : { type, input: JSON.parse(text) as unknown };
    });
    expect(whole.content).toMatchObject(content);
    const { delta, usage } = events.at(-2)!;
    expect({ ...(delta as object), usage }).toEqual({
      stop_reason: whole['stop_reason'],
      stop_sequence: null,
      usage: whole['usage'],
    });
  });

  test('limits and stop sequences are reported as stop reasons', async () => {
    const { post, rollout } = await apis();
    expect((await post('/messages', { ...ASKED, max_tokens: 1 })).json['stop_reason']).toBe('max_tokens');
    const generate = rollout.generate.bind(rollout);
    rollout.generate = async (request) => ({ ...(await generate(request)), stopString: request.sampling.stop![0] });
    const stopped = await post('/messages', { ...ASKED, stop_sequences: ['ur'] });
    expect(stopped.json).toMatchObject({ stop_reason: 'stop_sequence', stop_sequence: 'ur' });
  });

  test('results before a text, and results that are errors', async () => {
    const { post, rollout } = await apis();
    const use = { type: 'tool_use', id: 'a', name: 'calculator', input: {} };
    const results = [
      { type: 'tool_result', tool_use_id: 'a', content: 'no such key', is_error: true },
      { type: 'text', text: 'Try ' },
      { type: 'text', text: 'again.', cache_control: { type: 'ephemeral' } },
    ];
    const messages = [...ASKED.messages, { role: 'assistant', content: [use] }, { role: 'user', content: results }];
    await post('/messages', { ...ASKED, messages, tools: TOOLS });
    expect(tokenizer.decode(rollout.requests[0].contextIds)).toMatch(/Error: no such key[^]*user\nTry again\./);
  });

  test('a token as x-api-key; errors in the shape of Anthropic', async () => {
    const { post, url } = await apis({ token: 'secret' });
    const by = (headers: Record<string, string>, body = {}) => post('/messages', { ...ASKED, ...body }, headers);
    expect(await by({})).toMatchObject({
      status: 401,
      json: { type: 'error', error: { type: 'authentication_error' } },
    });
    expect((await by({ 'x-api-key': 'wrong' })).status).toBe(401);
    const key = { 'x-api-key': 'secret' };
    expect((await by(key)).status).toBe(200);
    const message = (content: unknown, role = 'user') => ({ messages: [{ role, content }] });
    for (const [body, type, words] of [
      [{ max_tokens: undefined }, 'invalid_request_error', 'max_tokens is undefined; allowed: a whole number'],
      [{ max_tokens: 0 }, 'invalid_request_error', 'max_tokens is 0'],
      [
        message([{ type: 'image', source: {} }]),
        'invalid_request_error',
        'messages[0].content[0].type is "image"; allowed: text or',
      ],
      [message('x', 'system'), 'invalid_request_error', 'messages[0].role is "system"'],
      [message('Hi', 'assistant'), 'invalid_request_error', "ends with a user's or a tool's message"],
      [message('two plus two '.repeat(400)), 'invalid_request_error', 'but a context holds 400'],
      [
        { tools: [{ type: 'bash_20250124', name: 'bash' }] },
        'invalid_request_error',
        'tools that Anthropic runs or defines',
      ],
      [{ stop_sequences: [''] }, 'invalid_request_error', 'stop_sequences is a list of 1'],
      [{ mcp_servers: [{}] }, 'invalid_request_error', 'the client runs the tools'],
      [{ mcp_servers: 'x' }, 'invalid_request_error', 'mcp_servers is "x"; allowed: an empty list'],
    ] as const) {
      const { json } = await by(key, body);
      expect(json).toEqual({ type: 'error', error: { type, message: containing(words) } });
    }
    expect((await post('/t/g/a/messages', {}, key)).json).toMatchObject({ type: 'error' });
    const other = await fetch(`${url}/v1/nothing`, { headers: { ...key, 'anthropic-version': '2023-06-01' } });
    expect(await other.json()).toMatchObject({ type: 'error', error: { type: 'not_found_error' } });
  });
});

describe('/v1/responses', () => {
  const TOOLS = [{ type: 'function', name: 'calculator', parameters: PARAMETERS, strict: true }];
  const ASKED = { model: 'talking', input: QUESTION };

  test.each([
    ['by full items', (first: Answer) => [{ role: 'user', content: QUESTION }, ...first.output], undefined],
    [
      'by references',
      (first: Answer) => [
        { role: 'user', content: [{ type: 'input_text', text: QUESTION }] },
        ...first.output.map(({ id }) => ({ type: 'item_reference', id })),
      ],
      undefined,
    ],
    ['by previous_response_id', () => [], true],
  ])('a tool loop continues %s', async (_, before, isByPrevious) => {
    const { post, rollout, reward, counts } = await apis();
    rollout.says = callsCalculator;
    const asked = { ...ASKED, instructions: 'Be brief.', tools: TOOLS };
    const { json: first } = await post('/responses', asked);
    expect(first).toMatchObject({
      object: 'response',
      status: 'completed',
      model: 'talking',
      instructions: 'Be brief.',
      tools: TOOLS,
      output: [{ type: 'function_call', name: 'calculator', arguments: '{"expression":"6*7"}', status: 'completed' }],
    });
    const result = { type: 'function_call_output', call_id: first.output[0].call_id, output: '42' };
    const more = { input: [...before(first), result], ...(isByPrevious && { previous_response_id: first.id }) };
    const { json: second } = await post('/responses', { ...asked, ...more });
    const content = [{ type: 'output_text', text: 'It is 42.', annotations: [], logprobs: [] }];
    expect(second.output).toMatchObject([{ type: 'message', role: 'assistant', content }]);
    const {
      input_tokens: input,
      output_tokens: output,
      total_tokens: total,
    } = second['usage'] as Record<string, number>;
    expect([output, total]).toEqual([tokenizer.encode('It is 42.').length + 1, input + output]);
    const third = { input: 'Sure?', previous_response_id: second.id };
    expect((await post('/responses', { ...asked, ...third })).status).toBe(200);
    expect(await counts()).toEqual({ 'client/calls': 3, 'client/continuations': 2 });
    expect((await reward(second.id)).status).toBe(200);
  });

  test.each([
    ['a text', () => 'Four.', ['message']],
    ['a call', callsCalculator, ['function_call']],
    [
      'a text and two calls',
      () => `Well. ${callsCalculator({ contextIds: Uint32Array.of() }).repeat(2)}`,
      ['message', 'function_call', 'function_call'],
    ],
    ['nothing', () => '', ['message']],
  ] as const)('the events of %s are those of OpenAI, and end with the whole answer', async (_, says, types) => {
    const { stream, rollout } = await apis();
    rollout.says = says;
    const events = await stream('/responses', { ...ASKED, tools: TOOLS });
    expect(events.map((event) => event['sequence_number'])).toEqual(events.map((__, i) => i));
    const isEmpty = says({ contextIds: Uint32Array.of() }) === '';
    const parts = {
      message: [
        'content_part.added',
        ...(isEmpty ? [] : ['output_text.delta']),
        'output_text.done',
        'content_part.done',
      ],
      function_call: ['function_call_arguments.delta', 'function_call_arguments.done'],
    };
    const names = events.map(({ type }) => type.replace('response.', '')).filter((type, i, all) => type !== all[i - 1]);
    expect(names).toEqual([
      'created',
      'in_progress',
      ...types.flatMap((type) => ['output_item.added', ...parts[type], 'output_item.done']),
      'completed',
    ]);
    const done = events.filter(({ type }) => type === 'response.output_item.done');
    expect(done.map((event) => event['output_index'])).toEqual(types.map((__, i) => i));
    const { response } = events.at(-1)!;
    expect(response['output']).toEqual(done.map(({ item }) => item as unknown));
    expect(response['output']).toMatchObject(types.map((type) => ({ type })));
    const deltas = events.filter(({ type }) => type === 'response.output_text.delta');
    expect(deltas.map(({ delta }) => delta as string).join('')).toBe(
      says({ contextIds: Uint32Array.of() }).split(' <')[0].replace(/^<.*/, ''),
    );
  });

  test('a reply of a text and two calls continues, however its items are sent', async () => {
    const { post, rollout, counts } = await apis();
    rollout.says = ({ contextIds }) => `Well. ${callsCalculator({ contextIds }).repeat(2)}`;
    const asked = { ...ASKED, tools: TOOLS };
    const { json: first } = await post('/responses', asked);
    expect(first.output.map(({ type }) => type)).toEqual(['message', 'function_call', 'function_call']);
    const results = first.output.slice(1).map(({ call_id: id }) => {
      return { type: 'function_call_output', call_id: id, output: '42' };
    });
    const references = first.output.map(({ id }) => ({ type: 'item_reference', id }));
    const plain = first.output.map(({ id: _, ...item }) => item);
    for (const items of [references, first.output, plain])
      await post('/responses', { ...asked, input: [{ role: 'user', content: QUESTION }, ...items, ...results] });
    // The first of the three requests continues the trajectory. The other two repeat its messages, so they become forks after the same
    // reply.
    expect(await counts()).toMatchObject({ 'client/calls': 4, 'client/continuations': 1, 'client/forks': 2 });
    const [one, , ...again] = rollout.requests;
    for (const { contextIds } of again) expect(contextIds).toEqual(rollout.requests[1].contextIds);
    expect(rollout.requests[1].contextIds.subarray(0, one.contextIds.length)).toEqual(one.contextIds);
  });

  test('a reply that is cut is incomplete', async () => {
    const { post, stream } = await apis();
    const cut = { ...ASKED, max_output_tokens: 1 };
    expect((await post('/responses', cut)).json).toMatchObject({
      status: 'incomplete',
      incomplete_details: { reason: 'max_output_tokens' },
    });
    expect((await stream('/responses', cut)).at(-1)).toMatchObject({
      type: 'response.incomplete',
      response: { status: 'incomplete' },
    });
  });

  test('ids tell apart two episodes with equal replies', async () => {
    const { post, groups, counts } = await apis();
    const firsts = [
      await post('/responses', ASKED),
      await post('/t/g/b/responses', ASKED),
      await post('/responses', { ...ASKED, user: 'x' }),
    ];
    const [{ json: a }, , { json: b }] = firsts;
    expect(groups.size).toBe(3);
    for (const { id, output } of [b, a]) {
      await post('/responses', { input: 'Sure?', previous_response_id: id });
      await post('/responses', {
        input: [{ role: 'user', content: QUESTION }, ...output, { role: 'user', content: 'Why?' }],
      });
    }
    expect(groups.size).toBe(3);
    expect(groups.episodes.map((one) => one.rows().length)).toEqual([2, 1, 2]); // "Sure?" continues, "Why?" is a fork
    expect(await counts()).toMatchObject({ 'client/continuations': 2, 'client/forks': 2 });
  });

  test('replies are kept only with store', async () => {
    const { post } = await apis();
    const { json } = await post('/responses', { ...ASKED, store: false });
    for (const body of [
      { previous_response_id: json.id },
      { input: [{ type: 'item_reference', id: json.output[0].id }] },
    ]) {
      const { status, json: refused } = await post('/responses', { ...ASKED, ...body });
      expect([status, refused['error']]).toEqual([
        400,
        expect.objectContaining({ message: containing('There is no reply "') }),
      ]);
    }
  });

  test('only the newest replies are kept', () => {
    const kept = new KeptResponses(2);
    for (const key of ['a-1', 'b-1', 'c-1'])
      kept.keep(key, { before: undefined, messages: [{ role: 'assistant', content: key }] });
    expect(kept.item('msg_c-1')).toMatchObject({ content: 'c-1' });
    expect(kept.conversation('resp_b-1').messages).toHaveLength(1);
    expect(() => kept.conversation('resp_a-1')).toThrow('the newest 2 are kept in memory');
    const small = new KeptResponses(9, 100);
    for (const key of ['a-1', 'b-1'])
      small.keep(key, { before: undefined, messages: [{ role: 'assistant', content: key.repeat(20) }] });
    expect(small.conversation('resp_b-1').messages).toHaveLength(1);
    expect(() => small.conversation('resp_a-1')).toThrow('There is no reply');
  });

  test('a value of include that is not served is a hint', async () => {
    const { post, groups } = await apis();
    const include = ['message.output_text.logprobs', 'reasoning.encrypted_content'];
    expect((await post('/responses', { ...ASKED, include })).status).toBe(200);
    expect(groups.hints).not.toHaveProperty('include');
    expect((await post('/responses', { ...ASKED, include: [...include, 'file_search_call.results'] })).status).toBe(
      200,
    );
    expect(groups.hints).toMatchObject({ include: 1 });
  });

  test.each<[string, object, string, string]>([
    ['no input', { input: undefined }, 'input', 'input is a list of 0; allowed: a list of at least one'],
    [
      'an item of another type',
      { input: [{ type: 'computer_call' }] },
      'input[0].type',
      'input[0].type is "computer_call"',
    ],
    [
      'an image',
      { input: [{ role: 'user', content: [{ type: 'input_image' }] }] },
      'input[0].content[0].type',
      'reads text alone',
    ],
    [
      'a tool of the server',
      { tools: [{ type: 'web_search' }] },
      'tools[0].type',
      'tools[0].type is "web_search"; allowed: { type: "function"',
    ],
    [
      'a choice in the form of chat completions',
      { tool_choice: { type: 'function', function: { name: 'calculator' } } },
      'tool_choice',
      'tool_choice is an object; allowed: "auto", "none", "required" or { type: "function", name }',
    ],
    ['background', { background: true }, 'background', 'background is true'],
    ['a conversation', { conversation: 'conv_1' }, 'conversation', 'use previous_response_id'],
    ['a temperature out of range', { temperature: 3 }, 'temperature', 'temperature is 3'],
    ['chat messages', { messages: [] }, 'messages', 'the conversation is in input'],
    ['a prompt that is too long', { input: 'two plus two '.repeat(400) }, 'input', 'The messages have'],
  ])('%s is refused', async (_, body, param, words) => {
    const { post, groups } = await apis();
    const { status, json } = await post('/responses', { ...ASKED, ...body });
    expect([status, json['error']]).toEqual([400, expect.objectContaining({ param })]);
    expect((json['error'] as { message: string }).message).toContain(words);
    expect(groups.size).toBe(0);
  });
});

describe('fields without effect are counted by their path', () => {
  const said = (more: object) => [{ type: 'text', text: QUESTION, ...more }];
  const ofResponses = (content: object) => ({ input: [{ role: 'user', content: [content] }] });
  test.each<[string, string, object]>([
    ['/responses', 'reasoning.effort', { reasoning: { effort: 'low' } }],
    ['/responses', 'reasoning.summary', { reasoning: { effort: null, summary: 'auto' } }],
    ['/responses', 'text.verbosity', { text: { verbosity: 'low', format: { type: 'text' } } }],
    [
      '/responses',
      'text.format.pattern',
      { text: { format: { type: 'json_schema', name: 'a', schema: { type: 'string', pattern: 'a' } } } },
    ],
    ['/responses', 'truncation', { truncation: 'auto' }],
    ['/responses', 'max_tool_calls', { max_tool_calls: 2 }],
    ['/responses', 'stream_options.include_obfuscation', { stream_options: { include_obfuscation: false } }],
    ['/responses', 'tools[].strict', { tools: [1, 2].map((n) => ({ type: 'function', name: `f${n}`, strict: true })) }],
    [
      '/responses',
      'tools[].defer_loading',
      { tools: [{ type: 'function', name: 'f', strict: false, defer_loading: true }] },
    ],
    [
      '/responses',
      'input[].content[].prompt_cache_breakpoint',
      ofResponses({ type: 'input_text', text: 'Hi', prompt_cache_breakpoint: {} }),
    ],
    ['/responses', 'model', { model: 'gpt-5' }],
    ['/messages', 'thinking', { thinking: { type: 'enabled', budget_tokens: 1024 } }],
    ['/messages', 'output_config.effort', { output_config: { effort: 'low' } }],
    ['/messages', 'output_config.task_budget', { output_config: { task_budget: { total: 1 } } }],
    [
      '/messages',
      'tool_choice.disable_parallel_tool_use',
      { tools: [{ name: 'f', input_schema: {} }], tool_choice: { type: 'auto', disable_parallel_tool_use: true } },
    ],
    [
      '/messages',
      'tools[].cache_control',
      { tools: [{ name: 'f', input_schema: {}, cache_control: { type: 'ephemeral' } }] },
    ],
    ['/messages', 'tools[].strict', { tools: [{ name: 'f', input_schema: {}, strict: true }] }],
    ['/messages', 'system[].cache_control', { system: said({ cache_control: {}, citations: null }) }],
    [
      '/messages',
      'messages[].content[].cache_control',
      { messages: [{ role: 'user', content: said({ cache_control: {} }) }] },
    ],
    [
      '/messages',
      'messages[].content[].citations',
      { messages: [{ role: 'user', content: said({ citations: [{}] }) }] },
    ],
    ['/messages', 'cache_control', { cache_control: {} }],
    ['/messages', 'top_secret', { top_secret: 0 }],
    ['/messages', 'logprobs', { logprobs: true, return_token_ids: false }],
    ['/messages', 'return_token_ids', { return_token_ids: true }],
    ['/responses', 'return_token_ids', { return_token_ids: true }],
  ])('%s: %s', async (path, name, more) => {
    const { post, groups } = await apis();
    const asked =
      path === '/responses' ? { input: QUESTION } : { max_tokens: 9, messages: [{ role: 'user', content: QUESTION }] };
    const plain =
      path === '/responses'
        ? { reasoning: {}, truncation: 'disabled', metadata: { a: 'b' } }
        : { thinking: { type: 'disabled' } };
    expect((await post(path, { ...asked, ...plain })).status).toBe(200);
    expect(groups.hints).toEqual({});
    expect((await post(path, { ...asked, ...more })).status).toBe(200);
    expect(groups.hints).toEqual({ [name]: 1 });
  });
});

describe('forced calls and formats are sampled as those of chat completions', () => {
  const properties = { n: { type: 'integer' } };
  const schema = { type: 'object', properties, required: ['n'], additionalProperties: false };
  const format = { type: 'json_schema', json_schema: { name: 'reply', schema } };
  const byName = { type: 'function', function: { name: 'calculator' } };
  const ofMessages = { type: 'json_schema', schema };
  test.each<[string, object, string, object]>([
    ['any', { tool_choice: 'required' }, '/messages', { tool_choice: { type: 'any' } }],
    [
      'any, one call',
      { tool_choice: 'required', parallel_tool_calls: false },
      '/messages',
      { tool_choice: { type: 'any', disable_parallel_tool_use: true } },
    ],
    ['a tool', { tool_choice: byName }, '/messages', { tool_choice: { type: 'tool', name: 'calculator' } }],
    ['none', { tool_choice: 'none' }, '/messages', { tool_choice: { type: 'none' } }],
    ['a format', { response_format: format }, '/messages', { output_config: { format: ofMessages } }],
    ['an older format', { response_format: format }, '/messages', { output_format: ofMessages }],
    ['required', { tool_choice: 'required' }, '/responses', { tool_choice: 'required' }],
    ['a function', { tool_choice: byName }, '/responses', { tool_choice: { type: 'function', name: 'calculator' } }],
    [
      'a schema',
      { response_format: format },
      '/responses',
      { text: { format: { type: 'json_schema', name: 'reply', schema, strict: true } } },
    ],
    ['JSON', { response_format: { type: 'json_object' } }, '/responses', { text: { format: { type: 'json_object' } } }],
  ])('%s', async (_, chat, path, other) => {
    const { post, rollout } = await apis();
    const called = { name: 'calculator', parameters: PARAMETERS };
    const asked = { messages: [{ role: 'user', content: QUESTION }], max_tokens: 90 };
    await post('/t/g/a/chat/completions', { ...asked, ...chat, tools: [{ type: 'function', function: called }] });
    const isResponses = path === '/responses';
    const given = isResponses ? { input: QUESTION, max_output_tokens: 90 } : asked;
    const tool = isResponses ? { type: 'function', ...called } : { name: 'calculator', input_schema: PARAMETERS };
    expect((await post(`/t/g/b${path}`, { ...given, ...other, tools: [tool] })).status).toBe(200);
    const [one, two] = rollout.requests.map(({ sampling, contextIds }) => JSON.stringify([sampling, [...contextIds]]));
    expect(two).toBe(one);
  });
});

test.each([
  [
    '/responses',
    { input: QUESTION },
    {
      type: 'error',
      sequence_number: 5,
      error: { type: 'server_error' },
      message: containing('broke'),
    },
  ],
  [
    '/messages',
    { messages: [{ role: 'user', content: QUESTION }], max_tokens: 9 },
    { type: 'error', error: { type: 'api_error' } },
  ],
])('a stream of %s that breaks ends with an error event', async (path, body, event) => {
  const { stream, rollout } = await apis();
  rollout.generate = (request) => {
    request.onTokens?.([...tokenizer.encode('Four')]);
    return Promise.reject(new Error('the engine broke'));
  };
  expect((await stream(path, body)).at(-1)).toMatchObject(event);
});

test('GET /v1/models has the fields that either API expects', async () => {
  const { url } = await servedRun();
  const list = (await (await fetch(`${url}/v1/models`)).json()) as { data: object[] };
  const model = { id: 'talking', object: 'model', owned_by: 'webgrpo', type: 'model', display_name: 'talking' };
  expect(list).toMatchObject({ object: 'list', data: [model], has_more: false, first_id: 'talking' });
  expect(await (await fetch(`${url}/v1/t/g/a/v1/models/talking`)).json()).toMatchObject(model);
});

/** JSON texts that are tried as the value of each field. */
const VALUES = [
  ...['null', 'true', 'false', '0', '-1', '1', '1.5', '1e308', '-1e308', '1e400', '9007199254740993', '5e-324'],
  ...[
    '""',
    '"x"',
    '"NaN"',
    '"-Infinity"',
    '"1e400"',
    '"null"',
    '"\\u0000\\n"',
    '"\\ud800"',
    '"<|im_end|>"',
    `"${'x'.repeat(5000)}"`,
  ],
  ...['[]', '[null]', '[[]]', '[{}]', '["x", 1]', `[${'{"type": "text", "text": "x"},'.repeat(300)}0]`],
  ...[
    '{}',
    '{"type": "x"}',
    '{"toString": null}',
    '{"__proto__": {"type": "text"}}',
    `${'{"a":'.repeat(50)}1${'}'.repeat(50)}`,
  ],
];

const FUNCTION = { type: 'function', function: { name: 'f', parameters: PARAMETERS } };
const CALL = { id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } };
/** A request of each API that has every kind of message, the type of its parameters in the API's package, and a few fields for everyday. */
const SWEPT = [
  {
    path: '/chat/completions',
    file: 'openai/resources/chat/completions/completions.d.ts',
    type: 'ChatCompletionCreateParamsBase',
    valid: {
      messages: [
        { role: 'user', content: [{ type: 'text', text: 'Hi' }] },
        { role: 'assistant', content: null, tool_calls: [CALL] },
        { role: 'tool', tool_call_id: 'c', content: '4' },
      ],
      tools: [FUNCTION],
      tool_choice: 'auto',
      response_format: { type: 'json_schema', json_schema: { name: 'r', schema: { type: 'object' } } },
    },
    few: [
      'n',
      'messages',
      'messages[].content',
      'tools[].function.parameters',
      'response_format.json_schema.schema',
      'logit_bias',
    ],
  },
  {
    path: '/responses',
    file: 'openai/resources/responses/responses.d.ts',
    type: 'ResponseCreateParamsBase',
    valid: {
      input: [
        { role: 'user', content: [{ type: 'input_text', text: 'Hi' }] },
        { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' },
        { type: 'function_call_output', call_id: 'c', output: '4' },
      ],
      tools: [{ type: 'function', name: 'f', parameters: PARAMETERS }],
      text: { format: { type: 'text' } },
      reasoning: { effort: 'low' },
    },
    few: ['input', 'input[].output', 'text', 'previous_response_id', 'include', 'top_logprobs'],
  },
  {
    path: '/messages',
    file: '@anthropic-ai/sdk/resources/messages/messages.d.ts',
    type: 'MessageCreateParamsBase',
    valid: {
      max_tokens: 9,
      messages: [
        { role: 'user', content: [{ type: 'text', text: 'Hi' }] },
        { role: 'assistant', content: [{ type: 'tool_use', id: 'c', name: 'f', input: {} }] },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c', content: '4' }] },
      ],
      system: [{ type: 'text', text: 'Be brief.' }],
      tools: [{ name: 'f', input_schema: PARAMETERS }],
      tool_choice: { type: 'auto' },
    },
    few: ['system', 'messages[].content[].content', 'tool_choice', 'thinking', 'metadata', 'stop_sequences'],
  },
];

/** Returns the paths of all fields of a type in a package's declarations, to a depth of four. */
async function fieldsOf(file: string, type: string): Promise<string[]> {
  const { default: ts } = await import('typescript');
  const program = ts.createProgram([`node_modules/${file}`], { skipLibCheck: true, strict: true, types: [] });
  const checker = program.getTypeChecker();
  const paths = new Set<string>();
  const visit = (given: import('typescript').Type, path: string, depth: number): void => {
    if (given.isUnionOrIntersection()) return given.types.forEach((one) => visit(one, path, depth));
    if (checker.isArrayType(given)) return visit(checker.getTypeArguments(given as never)[0], `${path}[]`, depth);
    if (!(given.flags & ts.TypeFlags.Object) || depth === 0) return;
    for (const property of checker.getPropertiesOfType(given)) {
      const at = path === '' ? property.name : `${path}.${property.name}`;
      paths.add(at);
      visit(checker.getTypeOfSymbol(property), at, depth - 1);
    }
  };
  const source = program.getSourceFile(`node_modules/${file}`)!;
  ts.forEachChild(source, (node) => {
    if (ts.isInterfaceDeclaration(node) && node.name.text === type) visit(checker.getTypeAtLocation(node), '', 4);
  });
  return [...paths];
}

/** Returns a copy of a request with the value at the path. @param item index in the last list on the path */
function withValue(valid: object, path: string, value: unknown, item: number): object {
  const keys = path.replaceAll('[]', '.[]').split('.');
  const body = structuredClone(valid) as Record<string, unknown>;
  let at: Record<string, unknown> = body;
  for (const [i, key] of keys.slice(0, -1).entries()) {
    const name = key === '[]' ? Math.min(item, (at as unknown as unknown[]).length) : key;
    if (typeof at[name] !== 'object' || at[name] === null) at[name] = keys[i + 1] === '[]' ? [] : {};
    at = at[name] as Record<string, unknown>;
  }
  at[keys.at(-1)!] = value;
  return body;
}

const isFull = process.env['FULL_TESTS'] === '1';
const WAYS = SWEPT.flatMap((swept) => [
  { ...swept, way: 'a few fields over HTTP' },
  ...(isFull ? [{ ...swept, way: 'all fields' }] : []),
]);
test.each(WAYS)('any value of $way of $path is served, or refused in the form of its API', async (swept) => {
  const { path, file, type, valid, few, way } = swept;
  const isAll = way === 'all fields';
  const run = await servedRun({ tokens: 2000 });
  const overHttp = async (body: string) => {
    const headers = { 'content-type': 'application/json' };
    const answer = await fetch(`${run.url}/v1${path}`, { method: 'POST', headers, body });
    return { status: answer.status, said: await answer.text() };
  };
  /** Sends the request without HTTP, as the server does it. */
  const directly = async (body: string) => {
    const { signal } = new AbortController();
    try {
      const json = () => Promise.resolve(JSON.parse(body) as unknown);
      const answer = await run.handler(`v1${path}`.split('/'))!['POST']({ json, signal });
      if ('body' in answer) return { status: 200, said: JSON.stringify(answer.body) };
      const events: string[] = [];
      for await (const event of 'named' in answer ? answer.named : answer.events)
        events.push(`data: ${JSON.stringify(event)}`);
      return { status: 200, said: events.join('\n') };
    } catch (error) {
      const refused =
        error instanceof ApiError
          ? error
          : new ApiError(String(error), { status: error instanceof InputError ? 400 : 500 });
      return {
        status: refused.status,
        said: JSON.stringify(path === '/messages' ? anthropicError(refused) : refused.body),
      };
    }
  };
  const send = isAll ? directly : overHttp;
  const counts: Record<number, number> = {};
  const fields = isAll ? await fieldsOf(file, type) : few;
  const texts = fields.flatMap((field, f) =>
    VALUES.flatMap((value, i) => {
      if (!isAll && (f + i) % 14 !== 0) return [];
      const body = JSON.stringify(withValue(valid, field, '@value', (f + i) % 3)).replaceAll('"@value"', () => value);
      return [body, body.replace('{', '{"stream": true, ')];
    }),
  );
  const check = async (body: string) => {
    const { status, said } = await send(body);
    counts[status] = (counts[status] ?? 0) + 1;
    if (status === 200)
      return expect([body, said]).toEqual([body, expect.not.stringMatching(/server_error|api_error|"error":\{/)]);
    const { error } = JSON.parse(said) as { error: { type: string; message: string } };
    expect([body, status, error.type]).toEqual([body, status === 413 ? 413 : 400, 'invalid_request_error']);
    expect(Object.keys(error).toSorted()).toEqual(
      path === '/messages' ? ['message', 'type'] : ['code', 'message', 'param', 'type'],
    );
    expect([body, error.message]).toEqual([body, expect.stringMatching(/^[^\n]{10,600}$/)]);
    expect(error.message).not.toMatch(/\bat .*:\d+|node_modules|\.ts\b|is not a function|Cannot read/);
  };
  for (let i = 0; i < texts.length; i += 64) {
    await Promise.all(texts.slice(i, i + 64).map(check));
    run.groups.reset(undefined, true);
    run.rollout.requests.length = 0;
  }
  const status = run.handler(['v1', 'status'])!['GET']({} as never) as { body: object };
  expect(status.body).toMatchObject({ calls: 0, open_trajectories: 0 });
  expect([run.rollout.held.size, run.rollout.underWay]).toEqual([0, 0]);
  if (isAll)
    console.log(`${path}: ${fields.length} fields, ${texts.length} requests, by status ${JSON.stringify(counts)}`);
});
