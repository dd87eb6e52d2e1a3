/**
 * Tests formats of tool calls that use control tokens. Each has a chat template that follows the format's specification of calls and
 * outputs. Rendered calls are parsed back, and a sample's tokens are the template's.
 */
import { describe, expect, test } from 'vitest';
import { parseTrainConfig } from '../../src/extensions/yaml/text.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { parseGptOss } from '../../src/rollout/tools/gptOss.ts';
import { TOOL_PARSERS, toolParserOf } from '../../src/rollout/tools/parser.ts';
import type { Tool } from '../../src/tasks/tool.ts';
import { processorMs } from '../processorTime.ts';
import { run, ScriptedTurns, tokenizer as shipped, tokenizerJson } from '../scriptedTurns.ts';

interface Format {
  /** Control tokens of the format. The first one ends a turn. */
  tokens: string[];
  template: string;
  /** True if a turn can contain several calls. */
  parallel: boolean;
}

/** Returns a template macro that formats values as Gemma does: texts between special quotes, keys without quotes. */
const gemmaValue = (quote: string) =>
  `{%- macro value(v) -%}
    {%- if v is string -%}${quote}{{ v }}${quote}
    {%- elif v is mapping -%}{ {%- for k, w in v | dictsort -%}{{ k }}:{{ value(w) }}{{ ',' if not loop.last }}{%- endfor -%} }
    {%- elif v is boolean -%}{{ 'true' if v else 'false' }}
    {%- elif v is iterable -%}[{%- for w in v -%}{{ value(w) }}{{ ',' if not loop.last }}{%- endfor -%}]
    {%- else -%}{{ v }}{%- endif -%}
  {%- endmacro -%}`;

/** A format in which calls and outputs are part of the model's turn. The turn continues after the last output. */
const gemma = (turn: [string, string], call: [string, string], response: [string, string], quote: string) =>
  `${gemmaValue(quote)}
  {%- for m in messages -%}
    {%- if m.role == 'tool' -%}
      ${response[0]}response:{{ m.name }}{value:{{ value(m.content) }}}${response[1]}
    {%- elif m.tool_calls -%}
      ${turn[0]}model\n{% for c in m.tool_calls -%}
        ${call[0]}call:{{ c.function.name }}{{ value(c.function.arguments) }}${call[1]}
      {%- endfor -%}
    {%- else -%}
      ${turn[0]}{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content }}${turn[1]}\n
    {%- endif -%}
  {%- endfor -%}
  {%- if add_generation_prompt and messages[-1].role != 'tool' -%}${turn[0]}model\n{% endif -%}`;

const FORMATS: Record<string, Format> = {
  // A format with one call per message, addressed to a recipient. An output names the function that was called last, so there must have
  // been a call.
  'gpt-oss': {
    tokens: ['<|return|>', '<|start|>', '<|end|>', '<|message|>', '<|channel|>', '<|constrain|>', '<|call|>'],
    template: `{%- set last = namespace(name=none) -%}
      {%- for m in messages -%}
        {%- if m.role == 'tool' -%}
          {%- if last.name is none -%}{{ raise_exception('An output without a call.') }}{%- endif -%}
          <|start|>functions.{{ last.name }} to=assistant<|channel|>commentary<|message|>{{ m.content | tojson }}<|end|>
        {%- elif m.tool_calls -%}
          {%- set last.name = m.tool_calls[0].function.name -%}
          <|start|>assistant to=functions.{{ last.name }}<|channel|>commentary json<|message|>
          {{- m.tool_calls[0].function.arguments | tojson -}}<|call|>
        {%- elif m.role == 'assistant' -%}
          <|start|>assistant<|channel|>final<|message|>{{ m.content }}{{ '<|return|>' if loop.last else '<|end|>' }}
        {%- else -%}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{%- endif -%}
      {%- endfor -%}
      {%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}`,
    parallel: false,
  },
  // A format in which no special token ends an assistant's turn, only the next role does.
  glm: {
    tokens: ['<|user|>', '<|assistant|>', '<|observation|>', '<tool_response>', '</tool_response>'],
    template: `{%- for m in messages -%}
        {%- if m.role == 'tool' -%}
          {{- '<|observation|>' if messages[loop.index0 - 1].role != 'tool' -}}
          {{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' -}}
        {%- elif m.tool_calls -%}
          <|assistant|>
          {%- for c in m.tool_calls -%}
            {{- '\\n<tool_call>' + c.function.name + '\\n' -}}
            {%- for k, v in c.function.arguments.items() -%}
              {{- '<arg_key>' + k + '</arg_key>\\n<arg_value>' -}}
              {{- v if v is string else v | tojson -}}{{- '</arg_value>\\n' -}}
            {%- endfor -%}</tool_call>
          {%- endfor -%}
        {%- else -%}{{ '<|' + m.role + '|>\\n' + m.content }}{%- endif -%}
      {%- endfor -%}
      {%- if add_generation_prompt -%}<|assistant|>{%- endif -%}`,
    parallel: true,
  },
  // A format in which an output names the id of its call. The ids count the calls of a function.
  kimi: {
    tokens: [
      '<|im_end|>',
      '<|im_middle|>',
      ...['user', 'assistant', 'system'].map((role) => `<|im_${role}|>`),
      ...['tool_calls_section', 'tool_call'].flatMap((name) => [`<|${name}_begin|>`, `<|${name}_end|>`]),
      '<|tool_call_argument_begin|>',
    ],
    template: `{%- for m in messages -%}
        {{- '<|im_' + (m.role if m.role != 'tool' else 'system') + '|>' + (m.name or m.role) + '<|im_middle|>' -}}
        {%- if m.role == 'tool' -%}{{- '## Return of ' + m.tool_call_id + '\\n' + m.content -}}
        {%- elif m.tool_calls -%}
          <|tool_calls_section_begin|>
          {%- for c in m.tool_calls -%}
            <|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>{{ c.function.arguments | tojson }}<|tool_call_end|>
          {%- endfor -%}
          <|tool_calls_section_end|>
        {%- else -%}{{ m.content }}{%- endif -%}
        <|im_end|>
      {%- endfor -%}
      {%- if add_generation_prompt -%}<|im_assistant|>assistant<|im_middle|>{%- endif -%}`,
    parallel: true,
  },
  functiongemma: {
    tokens: [
      '<end_of_turn>',
      '<start_of_turn>',
      '<escape>',
      ...['call', 'response'].flatMap((name) => [`<start_function_${name}>`, `<end_function_${name}>`]),
    ],
    template: gemma(
      ['<start_of_turn>', '<end_of_turn>'],
      ['<start_function_call>', '<end_function_call>'],
      ['<start_function_response>', '<end_function_response>'],
      '<escape>',
    ),
    parallel: true,
  },
  gemma4: {
    tokens: ['<turn|>', '<|turn>', '<|tool_call>', '<tool_call|>', '<|tool_response>', '<tool_response|>', '<|"|>'],
    template: gemma(
      ['<|turn>', '<turn|>'],
      ['<|tool_call>', '<tool_call|>'],
      ['<|tool_response>', '<tool_response|>'],
      '<|"|>',
    ),
    parallel: true,
  },
};

/** Returns the shipped tokenizer with the format's control tokens and template. */
function tokenizerOf({ tokens, template }: Format): ChatTokenizer {
  const json = structuredClone(tokenizerJson) as { added_tokens: { id: number; content: string }[] };
  const known = new Set(json.added_tokens.map(({ content }) => content));
  const added = tokens
    .filter((content) => !known.has(content))
    .map((content, i) => ({ ...json.added_tokens[0], id: shipped.vocabSize + i, content, special: true }));
  json.added_tokens.push(...added);
  return new ChatTokenizer(json, { eos_token: tokens[0], chat_template: template });
}

const search: Tool = {
  name: 'search',
  description: '',
  parameters: {
    type: 'object',
    properties: {
      query: { type: 'string' },
      limit: { type: 'integer' },
      exact: { type: 'boolean' },
      years: { type: 'array', items: { type: 'integer' } },
      where: { type: 'object' },
    },
    required: ['query'],
  },
  execute: ({ query }) => `found ${String(query)}`,
};
const ARGS = {
  exact: true,
  limit: -2,
  query: '12, "a": {b}\n[c] \\ \u00e9',
  where: { at: 'home: 1', n: 1.5 },
  years: [1, 20],
};
const USER = { role: 'user', content: 'Where?' };
const callOf = (name: string, args: object, i: number) => ({
  id: `functions.${name}:${i}`,
  type: 'function',
  function: { name, arguments: args },
});
const LIMITS = { maxPromptLength: 200, maxResponseLength: 1500, contextLength: 2000, maxToolResponseLength: 400 };

describe.each(Object.entries(FORMATS))('%s', (name, format) => {
  const own = tokenizerOf(format);
  const parse = toolParserOf(name);
  const args = format.parallel ? [ARGS, { query: '' }] : [ARGS];
  const conversation = [
    USER,
    { role: 'assistant', content: '', tool_calls: args.map((given, i) => callOf('search', given, i)) },
    ...args.map(({ query }, i) => ({
      role: 'tool',
      content: `found ${query}`,
      name: 'search',
      tool_call_id: `functions.search:${i}`,
    })),
  ];
  const prompt = own.applyChatTemplate([USER]);
  const written = own.applyChatTemplate(conversation);
  const turn = written.slice(prompt.length, written.indexOf(parse.stopToken!, prompt.length) + parse.stopToken!.length);

  test('calls rendered by the template are parsed back', () => {
    expect(parse(turn, [search])).toMatchObject(args.map((given) => ({ name: 'search', args: given })));
    expect(parse('The answer is 42.', [search])).toEqual([]);
  });

  test('a sample has exactly the tokens of its template, including outputs between turns', async () => {
    const engine = new ScriptedTurns([`${turn}never read`, '42'], own);
    const sampling = { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens: 900, stopTokenIds: own.eosTokenIds };
    const problem = { id: 'p', messages: [USER as { role: 'user'; content: string }], answer: '' };
    const input = { engine, tokenizer: own, problem, sampling, tools: [search], toolParser: parse, limits: LIMITS };
    const { trajectory, messages } = await run([], input);
    expect(trajectory).toMatchObject({
      stopReason: 'completed',
      numTurns: 2,
      numToolCalls: args.length,
      numToolErrors: 0,
    });
    const context = engine.requests[1].contextIds;
    expect(own.decode(context)).toBe(written);
    // The tokens must be the same for the complete text and for encoding turn by turn.
    expect([...context]).toEqual([...own.encodeChat(conversation)]);
    const drawn = [...trajectory.responseIds].filter((_, t) => trajectory.mask[t] === 1);
    expect(own.decode(drawn)).toBe(`${turn}42${format.tokens[0]}`);
    expect(messages.at(-1)).toEqual({ role: 'assistant', content: '42' });
    expect(engine.requests[0].sampling.stopTokenIds).toContain(own.idOf(parse.stopToken!));
  });
});

describe('invalid calls', () => {
  const harmony = (header: string, body: string) => `<|channel|>${header}<|message|>${body}<|call|>`;
  const kimi = (body: string) => `<|tool_calls_section_begin|><|tool_call_begin|>${body}<|tool_call_end|>`;
  const gemmaCall = (body: string) => `<start_function_call>${body}<end_function_call>`;
  const glmCall = (body: string) => `<tool_call>${body}</tool_call>`;
  const FORM = 'Error: the tool call is not of the form call:name{key:value}';

  test.each([
    [
      'gpt-oss',
      harmony('commentary to=functions.search <|constrain|>json', '{'),
      'Error: the tool call is not valid JSON',
    ],
    ['gpt-oss', harmony('commentary to=python', '{}'), 'Error: no tool "python"; there is search'],
    [
      'gpt-oss',
      harmony('commentary to=functions.search', '[]'),
      'Error: the arguments of search must be a JSON object',
    ],
    ['glm', glmCall('search\n<arg_key>query</arg_key>\n'), /^Error: an <arg_key> has no <\/arg_key> and <arg_value>/],
    ['glm', glmCall('search'), 'Error: search: argument "query" is missing'],
    ['glm', '<tool_call>search', 'Error: <tool_call> without </tool_call>'],
    ['kimi', kimi('functions.search:0{}'), 'Error: the tool call has no <|tool_call_argument_begin|>'],
    ['kimi', kimi('a b<|tool_call_argument_begin|>{}'), 'Error: the tool call is not named functions.NAME:0'],
    ['kimi', kimi('functions.find:3<|tool_call_argument_begin|>{}'), 'Error: no tool "find"; there is search'],
    ['kimi', '<|tool_call_begin|>functions.search:0', 'Error: <|tool_call_begin|> without <|tool_call_end|>'],
    ['functiongemma', gemmaCall('call:search{query:<escape>a}'), FORM],
    ['functiongemma', gemmaCall('call:search{query:<escape>a<escape>'), FORM],
    ['functiongemma', gemmaCall('call:search{query:<escape>a<escape>}x'), FORM],
    ['functiongemma', gemmaCall('search{}'), FORM],
    ['functiongemma', gemmaCall(`call:search{query:${'['.repeat(100)}${']'.repeat(100)}}`), FORM],
    ['functiongemma', gemmaCall('call:search{query:2}'), 'Error: search: argument "query" must be of type string'],
    ['gemma4', '<|tool_call>call:search{', 'Error: <|tool_call> without <tool_call|>'],
  ])('%s: %s', (format, text, message) => {
    const [call, ...more] = toolParserOf(format)(text, [search]);
    expect(call.error).toMatch(message);
    expect(more).toEqual([]);
    // Templates that render the function name of an output get the name of an existing call, or no name.
    expect([undefined, 'search']).toContain(call.name);
  });

  test('text for the model itself or for the user is not a call', () => {
    const thought = '<|channel|>analysis<|message|>I could say to=functions.search<|end|>';
    const final = '<|start|>assistant<|channel|>final<|message|>to=functions.search {}<|return|>';
    expect(parseGptOss(thought + final, [search])).toEqual([]);
    const both = `${thought}<|start|>assistant${harmony('commentary to=functions.search <|constrain|>json', '{"query":"q"}')}`;
    expect(parseGptOss(both, [search])).toEqual([{ name: 'search', args: { query: 'q' } }]);
  });

  test.each(Object.keys(TOOL_PARSERS))('%s: ten times as long a text takes about ten times as long', (format) => {
    const parse = toolParserOf(format);
    const pieces = [
      ...'{[<,:',
      '<arg_key>',
      '<|start|>',
      '<|message|>',
      '<|tool_call_begin|>',
      'call:f{',
      ' to=',
      '<escape>',
      '<tool_call>',
    ];
    const cost = (piece: string, count: number) => {
      const text = `<tool_call>${piece.repeat(count)}</tool_call>`;
      return processorMs(() => parse(text, [search]));
    };
    for (const piece of pieces) {
      cost(piece, 1000);
      // An algorithm with quadratic time would make 10^10 steps here, which takes seconds.
      expect(cost(piece, 100_000)).toBeLessThan(1500);
    }
  });
});

test('calls written with control tokens cannot be constrained, which is reported before anything runs', () => {
  const config = (format: string) =>
    parseTrainConfig(
      `{name: t, model: {path: m}, task: {name: gsm8k}, rollout: {multiTurn: {enable: true, constrainToolCalls: true, format: ${format}}}}`,
      { source: 't.yaml' },
    );
  expect(() => config('kimi')).toThrow(
    'constrainToolCalls is on, but calls of this format are written with control tokens, which a mask over texts cannot ' +
      'see. Formats that can be constrained: hermes, llama3_json, qwen3_coder, glm. Turn constrainToolCalls off.',
  );
  expect(config('glm').rollout.multiTurn.format).toBe('glm');
});

test('a truncated turn is closed by the token after calls; a template without calls is refused', () => {
  const { kimi } = FORMATS;
  const calls = [{ id: 'functions.search:4', name: 'search' }];
  const output = [{ role: 'tool', content: 'x<|im_end|>' }];
  const after = (called: object) =>
    tokenizerOf(kimi).encodeContinuation(output, { calls, stopToken: '<|im_end|>', ...called });
  const rest = '<|im_system|>search<|im_middle|>## Return of functions.search:4\nx';
  const text = (ids: Uint32Array) => tokenizerOf(kimi).decode(ids);
  const end = tokenizerOf(kimi).idOf('<|im_end|>')!;
  expect(text(after({ end }))).toBe(`${rest}<|im_end|><|im_end|><|im_assistant|>assistant<|im_middle|>`);
  expect(text(after({}))).toBe(`<|im_end|>${rest}<|im_end|><|im_end|><|im_assistant|>assistant<|im_middle|>`);
  // Only the end that the template itself writes is a control token. The one in the tool's output is plain text.
  expect([...after({ end })].filter((id) => id === end)).toHaveLength(1);
  expect(() => shipped.encodeContinuation(output, { calls, stopToken: '<|im_end|>' })).toThrow(
    /^The chat template does not write <\|im_end\|> after an assistant's `tool_calls`, so tool outputs cannot/,
  );
});
