import { describe, expect, test } from 'vitest';
import { parseGlm, parseHermes, parseLlama3Json, parseQwenXml, TOOL_PARSERS } from '../../src/rollout/tools/parser.ts';
import { calculator } from '../../src/tasks/tools/calculator.ts';
import type { Tool } from '../../src/tasks/tool.ts';
import { processorMs } from '../processorTime.ts';

const search: Tool = {
  name: 'search',
  description: 'Finds documents.',
  parameters: {
    type: 'object',
    properties: {
      query: { type: 'string' },
      limit: { type: 'integer' },
      exact: { type: 'boolean' },
      sort: { type: 'string', enum: ['date', 'rank'] },
    },
    required: ['query'],
  },
  execute: () => '',
};
const TOOLS = [calculator, search];
const hermes = (json: string) => parseHermes(`<tool_call>${json}</tool_call>`, TOOLS);

describe('Hermes', () => {
  test('no call, one call with text around it, several calls', () => {
    expect(parseHermes('#### 24', TOOLS)).toEqual([]);
    const call = (e: string) =>
      `<tool_call>\n{"name": "calculator", "arguments": {"expression": "${e}"}}\n</tool_call>`;
    expect(parseHermes(`Let me see. ${call('1+2')} ok ${call('3*4')}`, TOOLS)).toEqual([
      { name: 'calculator', args: { expression: '1+2' } },
      { name: 'calculator', args: { expression: '3*4' } },
    ]);
  });

  test.each([
    ['{"name":"calculator"', 'Error: the tool call is not valid JSON'],
    ['', 'Error: the tool call is not valid JSON'],
    ['[]', 'Error: the tool call has no "name"'],
    ['null', 'Error: the tool call has no "name"'],
    ['{"name":7}', 'Error: the tool call has no "name"'],
    ['{"name":"python"}', 'Error: no tool "python"; there is calculator, search'],
    ['{"name":"__proto__"}', 'Error: no tool "__proto__"; there is calculator, search'],
    ['{"name":"calculator"}', 'Error: calculator: argument "expression" is missing'],
    ['{"name":"calculator","arguments":"1+2"}', 'Error: the arguments of calculator must be a JSON object'],
    [
      '{"name":"calculator","arguments":{"expression":3}}',
      'Error: calculator: argument "expression" must be of type string',
    ],
    ['{"name":"search","arguments":{"query":"q","toString":1}}', 'Error: search: unknown argument "toString"'],
    [
      '{"name":"search","arguments":{"query":"q","limit":1.5}}',
      'Error: search: argument "limit" must be of type integer',
    ],
    [
      '{"name":"search","arguments":{"query":"q","sort":"up"}}',
      'Error: search: argument "sort" must be one of date, rank',
    ],
  ])('%s -> %s', (json, error) => expect(hermes(json)).toMatchObject([{ error }]));

  test('a call that is not closed is an error, also when another follows', () => {
    const open = { error: 'Error: <tool_call> without </tool_call>' };
    expect(parseHermes('<tool_call>{"name":"calculator"', TOOLS)).toEqual([open]);
    const good = '<tool_call>{"name":"calculator","arguments":{"expression":"1"}}</tool_call>';
    expect(parseHermes(`<tool_call>{${good}`, TOOLS)).toEqual([
      open,
      { name: 'calculator', args: { expression: '1' } },
    ]);
  });
});

test('arguments are read under either name, in every format', () => {
  const read = [{ name: 'search', args: { query: 'q' } }];
  for (const key of ['arguments', 'parameters']) {
    expect(hermes(`{"name": "search", "${key}": {"query": "q"}}`)).toEqual(read);
    expect(parseLlama3Json(`{"name": "search", "${key}": {"query": "q"}}`, TOOLS)).toEqual(read);
  }
});

describe('Llama 3 JSON', () => {
  test('one call, several calls, plain text', () => {
    const call = '{"name": "search", "parameters": {"query": "a; b } {", "limit": 2}}';
    const read = { name: 'search', args: { query: 'a; b } {', limit: 2 } };
    expect(parseLlama3Json(` <|python_tag|>${call}`, TOOLS)).toEqual([read]);
    expect(parseLlama3Json(`${call}; ${call};`, TOOLS)).toEqual([read, read]);
    expect(parseLlama3Json('The answer is {"name"}', TOOLS)).toEqual([]);
    expect(parseLlama3Json('{"name": "search"', TOOLS)).toEqual([{ error: 'Error: the tool call is not valid JSON' }]);
  });
});

describe('Qwen3-coder XML', () => {
  const xml = (body: string) => parseQwenXml(`<tool_call>\n${body}\n</tool_call>`, TOOLS);

  test('values follow the schema: text stays text, the rest is read as JSON', () => {
    expect(
      xml(
        '<function=search>\n<parameter=query>\n12\nlines\n</parameter>\n<parameter=limit>\n3\n</parameter>\n' +
          '<parameter=exact>true</parameter>\n</function>',
      ),
    ).toEqual([{ name: 'search', args: { query: '12\nlines', limit: 3, exact: true } }]);
  });

  test('a text that would be a number stays text, in GLM calls too', () => {
    const read = [{ name: 'search', args: { query: '12', limit: 3 } }];
    expect(xml('<function=search><parameter=query>12</parameter><parameter=limit>3</parameter></function>')).toEqual(
      read,
    );
    const pair = (key: string, value: string) => `<arg_key>${key}</arg_key><arg_value>${value}</arg_value>`;
    expect(parseGlm(`<tool_call>search${pair('query', '12')}${pair('limit', '3')}</tool_call>`, TOOLS)).toEqual(read);
  });

  test.each([
    [{ anyOf: [{ type: 'string' }, { type: 'null' }] }, '12', '12'],
    [{ anyOf: [{ type: 'string' }, { type: 'null' }] }, 'null', null],
    [{ anyOf: [{ type: 'string' }, { type: 'null' }] }, '{"a": 1}', '{"a": 1}'],
    [{ anyOf: [{ type: 'integer' }, { type: 'string' }] }, '12', 12],
    [{ enum: ['1', '2'] }, '1', '1'],
    [{ type: 'boolean' }, 'True', true],
    [{ type: 'boolean' }, ' False ', false],
    [{ anyOf: [{ type: 'integer' }, { type: 'null' }] }, 'None', null],
    [{ type: 'array', items: { type: 'boolean' } }, '[True, False]', [true, false]],
    [{ type: 'object' }, `{'a': None, "b": 'it\\'s "x" True'}`, { a: null, b: 'it\'s "x" True' }],
    [{ type: 'string' }, 'True', 'True'],
    [{ type: 'any' }, 'True', 'True'],
    [{ type: 'any' }, '12', 12],
  ])('a value is read as the schema %j allows: %s', (schema, text, value) => {
    const tool: Tool = { ...search, parameters: { type: 'object', properties: { p: schema } } };
    const pair = `search<arg_key>p</arg_key><arg_value>${text}</arg_value>`;
    const read = [{ name: 'search', args: { p: value } }];
    expect(parseGlm(`<tool_call>${pair}</tool_call>`, [tool])).toEqual(read);
    const body = `<function=search><parameter=p>${text}</parameter></function>`;
    expect(parseQwenXml(`<tool_call>${body}</tool_call>`, [tool])).toEqual(read);
  });

  test('errors', () => {
    expect(xml('{"name":"search"}')).toEqual([{ error: 'Error: the tool call has no <function=name>' }]);
    expect(xml('<function=search></function>')).toMatchObject([
      { error: 'Error: search: argument "query" is missing' },
    ]);
    expect(
      xml('<function=search><parameter=query>q</parameter><parameter=limit>x</parameter></function>'),
    ).toMatchObject([{ error: 'Error: search: argument "limit" must be of type integer' }]);
  });
});

const TAGS = [
  ...['<tool_call>', '</tool_call>', '<function=search>', '<parameter=query>', '</parameter>', '<parameter='],
  ...['<arg_key>', '</arg_key>', '<arg_value>', '<|tool_call_begin|>', '<|tool_call_argument_begin|>'],
  ...['<|message|>', '<|channel|>commentary to=functions.search', '<start_function_call>call:search{', '<escape>'],
  ...['<|tool_call>call:search{', '[', '{', '{"name":', '\\"', '"', ',', ';', '\n', ' ', 'a'],
];
const WHOLE: Record<string, (inner: string) => string> = {
  bare: (inner) => inner,
  'in a call': (inner) => `<tool_call>${inner}</tool_call>`,
  'in a call to a function': (inner) => `<tool_call><function=search>${inner}</function></tool_call>`,
  'in a call with an argument': (inner) => `<tool_call>search<arg_key>query</arg_key><arg_value>${inner}</tool_call>`,
  'after the name': (inner) => `{"name": "search", "parameters": {"query": ${inner}`,
  'in a call to FunctionGemma': (inner) => `<start_function_call>call:search{query:${inner}}<end_function_call>`,
};
/** Characters of a hostile text, and the milliseconds that it may take. A parser with quadratic time would take many times as long. */
const [LONG, LONG_MS] = process.env['FULL_TESTS'] === '1' ? [2 ** 20, 3000] : [2 ** 17, 500];
test.each(Object.entries(TOOL_PARSERS))(`%s reads ${LONG} characters of any tag in a moment`, (_, parse) => {
  for (const [place, whole] of Object.entries(WHOLE))
    for (const tag of TAGS) {
      const text = whole(tag.repeat(Math.ceil(LONG / tag.length)));
      let calls: unknown;
      expect(
        processorMs(() => (calls = parse(text, TOOLS))),
        `${tag} ${place}`,
      ).toBeLessThan(LONG_MS);
      expect(Array.isArray(calls)).toBe(true);
    }
});

test.each([
  ['1e999', 'Error: search: a number is too large'],
  ['[[1e999]]', 'Error: search: a number is too large'],
  [`${'['.repeat(100)}${']'.repeat(100)}`, 'Error: search: the arguments are nested more than 64 deep'],
])('a value that JSON cannot write or nothing walks is an error for the model: %s', (value, error) => {
  const open: Tool = {
    ...search,
    parameters: { type: 'object', properties: { more: { type: 'any' }, limit: { type: 'number' } } },
  };
  const call = `<tool_call>{"name": "search", "arguments": {"more": ${value}}}</tool_call>`;
  expect(parseHermes(call, [open])).toEqual([{ error, name: 'search' }]);
  const xml = `<tool_call><function=search><parameter=more>${value}</parameter></function></tool_call>`;
  expect(parseQwenXml(xml, [open])).toEqual([{ error, name: 'search' }]);
});

test.each(["'", '"', "\\'", "'\\", 'True '])(`${LONG} characters of %j as an argument are read in a moment`, (part) => {
  const text = `'${part.repeat(LONG / part.length)}\\`;
  const tool: Tool = { ...search, parameters: { type: 'object', properties: { p: { type: 'object' } } } };
  const ms = processorMs(() =>
    parseQwenXml(`<tool_call><function=search><parameter=p>${text}</parameter></function></tool_call>`, [tool]),
  );
  expect(ms).toBeLessThan(LONG_MS);
});

test('an argument called __proto__ is an unknown argument', () => {
  const body = '<parameter=query>q</parameter><parameter=__proto__>{"polluted": 1}</parameter>';
  expect(parseQwenXml(`<tool_call><function=search>${body}</function></tool_call>`, TOOLS)).toEqual([
    { error: 'Error: search: unknown argument "__proto__"', name: 'search' },
  ]);
  expect({}).not.toHaveProperty('polluted');
});
