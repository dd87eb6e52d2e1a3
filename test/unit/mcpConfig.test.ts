/** Tests the conversion of MCP servers' schemas, and MCP servers in a config. */
import { readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { closeMcpServers } from '../../src/cli/run/mcpServers.ts';
import { openTask } from '../../src/cli/run/openTask.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/text.ts';
import { ByteAutomaton, DEAD } from '../../src/extensions/constrained/byteAutomaton.ts';
import { toolCallGrammar } from '../../src/extensions/constrained/toolGrammar.ts';
import { readInputSchema } from '../../src/extensions/mcp/schema.ts';
import { argumentProblem, type ToolSchema } from '../../src/tasks/toolSchema.ts';
import { toolContext } from '../samples.ts';
import type { TrainConfigInput } from '../../src/grpo/config/input.ts';

describe('schemas of MCP tools', () => {
  const read = (schema: unknown) => {
    const notes = new Map<string, number>();
    const parameters = readInputSchema(schema, notes);
    return { parameters: parameters!, notes: Object.fromEntries(notes) };
  };
  /** True if a constrained tool call can have these arguments. */
  const holds = (parameters: ToolSchema, args: unknown) => {
    const automaton = new ByteAutomaton(toolCallGrammar([{ name: 't', parameters }]));
    let state = automaton.start;
    for (const byte of new TextEncoder().encode(`{"name": "t", "arguments": ${JSON.stringify(args)}}</tool_call>`))
      if ((state = automaton.next(state, byte)) === DEAD) return false;
    return automaton.isEnd(state);
  };
  const object = (properties: object, more: object = {}) => ({ type: 'object', properties, ...more });

  // Schemas like those of well-known MCP servers: filesystem, git, fetch, github, postgres and playwright.
  test.each<[name: string, schema: unknown, good: unknown[], bad: unknown[]]>([
    [
      'anyOf with null',
      object({ head: { anyOf: [{ type: 'integer' }, { type: 'null' }], default: null } }),
      [{ head: 3 }, { head: null }, {}],
      [{ head: 'x' }],
    ],
    ['a list of types', object({ a: { type: ['string', 'number'] } }), [{ a: 'x' }, { a: 1.5 }], [{ a: true }]],
    ['nullable', object({ a: { type: 'string', nullable: true } }), [{ a: null }, { a: 'x' }], [{ a: 1 }]],
    ['const', object({ a: { const: 'on' } }), [{ a: 'on' }], [{ a: 'off' }]],
    [
      'enum of all kinds',
      object({ a: { enum: ['x', 1, null, true] } }),
      [{ a: 'x' }, { a: null }, { a: true }],
      [{ a: 2 }],
    ],
    [
      'arrays of objects',
      object({
        edits: { type: 'array', items: object({ old: { type: 'string' } }, { required: ['old'] }), minItems: 1 },
      }),
      [{ edits: [{ old: 'x' }, { old: 'y' }] }],
      [{ edits: [] }, { edits: [{}] }],
    ],
    [
      '$ref to $defs',
      object(
        { at: { $ref: '#/$defs/Point' } },
        { $defs: { Point: object({ x: { type: 'number' } }, { required: ['x'] }) } },
      ),
      [{ at: { x: 1 } }],
      [{ at: {} }, { at: 1 }],
    ],
    [
      'oneOf by a constant',
      object({
        do: {
          oneOf: [
            object({ kind: { const: 'click' }, at: { type: 'integer' } }, { required: ['kind', 'at'] }),
            object({ kind: { const: 'type' }, text: { type: 'string' } }, { required: ['kind', 'text'] }),
          ],
        },
      }),
      [{ do: { kind: 'click', at: 3 } }, { do: { kind: 'type', text: 'x' } }],
      [{ do: { kind: 'type', at: 3 } }, { do: {} }],
    ],
    [
      'allOf of one reference',
      object({ n: { allOf: [{ $ref: '#/$defs/N' }], default: 1 } }, { $defs: { N: { type: 'integer' } } }),
      [{ n: 1 }, {}],
      [{ n: 'x' }],
    ],
    [
      'allOf of several, left to the server',
      { allOf: [object({ a: { type: 'integer' } }, { required: ['a'] }), object({ b: { type: 'string' } })] },
      [{ a: 1, b: 'x' }, { b: 1 }],
      [],
    ],
    [
      'allOf beside members, left to the server',
      object({ a: { type: 'integer' } }, { allOf: [object({ b: { type: 'string' } })] }),
      [{ a: 1, b: 'x' }],
      [],
    ],
    [
      'a map',
      object({ env: { type: 'object', additionalProperties: { type: 'string' } } }),
      [{ env: { A: 'x' } }],
      [{ env: { A: 1 } }],
    ],
    ['any value', object({ value: {} }), [{ value: { a: [1] } }, { value: null }, { value: [['x']] }], []],
    [
      'any object',
      object({ filter: { type: 'object' } }),
      [{ filter: { a: 1, b: [true] } }, { filter: {} }],
      [{ filter: [] }],
    ],
    ['no properties', { type: 'object', properties: {} }, [{}], [{ a: 1 }]],
    ['no type', {}, [{}], []],
    ['an object without keys', { type: 'object', additionalProperties: {} }, [{}, { a: 1 }], []],
    [
      'lengths',
      object({ a: { type: 'string', minLength: 2, maxLength: 3 } }),
      [{ a: 'xy' }, { a: 'xyz' }],
      [{ a: 'x' }, { a: 'wxyz' }],
    ],
    [
      'bounds',
      object({ n: { type: 'integer', exclusiveMinimum: 0, maximum: 3 } }),
      [{ n: 1 }, { n: 3 }],
      [{ n: 0 }, { n: 4 }],
    ],
    [
      'either of two keys',
      object({ a: { type: 'string' }, b: { type: 'string' } }, { anyOf: [{ required: ['a'] }, { required: ['b'] }] }),
      [{ a: 'x' }, { b: 'x' }],
      [{ a: 1 }],
    ],
    ['a key that is needed and not described', { type: 'object', required: ['a'] }, [{ a: 1 }], [{}]],
  ])('%s: the check and the grammar agree', (_, schema, good, bad) => {
    const { parameters } = read(schema);
    for (const args of good) {
      expect(argumentProblem(args as Record<string, unknown>, parameters)).toBeNull();
      expect(holds(parameters, args)).toBe(true);
    }
    for (const args of bad) {
      expect(argumentProblem(args as Record<string, unknown>, parameters)).not.toBeNull();
      expect(holds(parameters, args)).toBe(false);
    }
  });

  test('keywords that a grammar cannot enforce are noted with their place, and left to the server', () => {
    const { parameters, notes } = read(
      object({
        url: { type: 'string', format: 'uri', pattern: '^https' },
        when: { type: 'string', format: 'date', maxLength: 65_536 },
        many: { type: 'array', uniqueItems: true, maxItems: 3, prefixItems: [{ type: 'string' }, { type: 'number' }] },
        step: { type: 'number', multipleOf: 5, exclusiveMinimum: 0 },
        odd: { type: 'file' },
        other: { $ref: 'https://example.org/schema.json' },
        not: { not: { type: 'string' } },
      }),
    );
    expect(notes).toEqual({
      ...{ pattern: 1, format: 2, maxLength: 1, uniqueItems: 1, maxItems: 1, prefixItems: 1, multipleOf: 1 },
      ...{ 'exclusiveMinimum, exclusiveMaximum': 1, 'type file': 1, 'a $ref elsewhere': 1, not: 1 },
    });
    expect(argumentProblem({ url: 'no url', odd: [1] }, parameters)).toBeNull();
  });

  test('hostile schemas are limited: doubling references, 1,000 alternatives, cycles, depth, invalid ones', () => {
    const doubling = Object.fromEntries(
      Array.from({ length: 30 }, (_, i) => [
        `d${i}`,
        object({ a: { $ref: `#/$defs/d${i + 1}` }, b: { $ref: `#/$defs/d${i + 1}` } }),
      ]),
    );
    let deep: object = { type: 'string' };
    for (let i = 0; i < 100_000; i++) deep = { type: 'object', properties: { x: deep } };
    deep = { ...deep, default: deep };
    for (const [schema, note] of [
      [object({ a: { $ref: '#/$defs/d0' } }, { $defs: doubling }), 'over 200 parts'],
      [object({ a: { anyOf: Array.from({ length: 1000 }, (_, i) => ({ const: i })) } }), 'over 64 alternatives'],
      [object({ a: { enum: Array.from({ length: 10_000 }, (_, i) => i) } }), 'enum'],
      [object({ a: { $ref: '#' } }), 'a $ref in itself'],
      [object({ a: { allOf: [{ $ref: '#/properties/a' }] } }), 'a $ref in itself'],
      [deep, 'nested over 16 deep'],
      [object({ a: 7, b: false }), 'an invalid schema'],
      [object({ ['k'.repeat(2 ** 20)]: {} }), 'a name over 200 characters'],
      [object({ a: { description: 'x'.repeat(2 ** 20) } }), 'description'],
    ] as const) {
      const { parameters, notes } = read(schema);
      expect(Object.keys(notes)).toContain(note);
      expect(JSON.stringify(parameters).length).toBeLessThan(60_000);
      expect(holds(parameters, { no: 'such' })).toBe(false);
    }
    for (const none of [7, 'x', [], { type: 'string' }]) expect(read(none).parameters).toBeUndefined();
  });

  test('"__proto__" is a name like any other', () => {
    const { parameters } = read(JSON.parse('{"type":"object","properties":{"__proto__":{"type":"string"}}}'));
    expect(argumentProblem(JSON.parse('{"__proto__":1}') as Record<string, unknown>, parameters)).toContain(
      '__proto__',
    );
    expect(({} as { type?: string }).type).toBeUndefined();
  });
});

describe('task.mcpServers', () => {
  let folder: string;
  let said: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'webgrpo-mcp-'));
  });
  afterAll(() => rm(folder, { recursive: true }));
  afterEach(closeMcpServers);

  const hostile = (...args: string[]) => ({ command: process.execPath, args: ['test/mcpServer.mjs', ...args] });
  const open = (mcpServers: NonNullable<TrainConfigInput['task']>['mcpServers']) => {
    said = '';
    vi.spyOn(process.stderr, 'write').mockImplementation((text) => Boolean((said += String(text))));
    return openTask({ name: 'gsm8k', timeoutS: 10, options: {}, mcpServers }).finally(() => vi.restoreAllMocks());
  };
  const names = async (mcpServers: NonNullable<TrainConfigInput['task']>['mcpServers']) =>
    (await open(mcpServers)).tools!.map(({ name }) => name);

  test('servers can be in the config or in an mcp.json file, and are opened once for several tasks', async () => {
    expect(await names({ a: { ...hostile(), tools: ['echo'], prefix: 'a_' } })).toEqual(['calculator', 'a_echo']);
    const file = join(folder, 'mcp.json');
    const entries = {
      a: { ...hostile(), type: 'stdio', autoApprove: ['echo'] },
      off: { command: 'x', disabled: true },
    };
    writeFileSync(file, JSON.stringify({ mcpServers: entries }));
    expect(await names(file)).toEqual(['calculator', 'echo', 'count', 'fault']);
    expect(said).toContain('task.mcpServers.a.autoApprove is not used here; known: command, args,');
    const count = async () => {
      const tool = (await open(file)).tools!.find(({ name }) => name === 'count')!;
      return tool.execute({}, toolContext({ signal: AbortSignal.timeout(30_000) }));
    };
    expect([await count(), await count()]).toEqual(['1', '2']);
  });

  test('${NAME} is taken from the environment, and is in no message and no config', async () => {
    vi.stubEnv('MCP_TEST_KEY', 'sk-12345');
    const text = (env: string) =>
      `name: x\nmodel: { path: x }\ntask: { mcpServers: { s: { command: x, env: { KEY: "${env}" } } } }\n`;
    const config = parseTrainConfig(text('${MCP_TEST_KEY}'), { source: 'x.yaml' });
    expect(JSON.stringify(config)).toContain('${MCP_TEST_KEY}');
    const servers = { s: { ...hostile('secret'), env: { KEY: '${MCP_TEST_KEY}' } } };
    const tool = (await open(servers)).tools!.find(({ name }) => name === 'fault')!;
    const context = toolContext({ signal: AbortSignal.timeout(30_000) });
    expect(await tool.execute({}, context)).toBe('Error: no access with ***');
    expect(said).not.toContain('sk-');
    await expect(open({ s: { command: 'no-such-${MCP_TEST_KEY}', env: { K: '${MCP_TEST_KEY}' } } })).rejects.toThrow(
      'no-such-***',
    );
    await expect(open({ s: { command: 'x', env: { K: '${MCP_NOT_SET}' } } })).rejects.toThrow(
      'task.mcpServers.s.env.K names the environment variable MCP_NOT_SET, which is not set. Set it, or write ${MCP_NOT_SET:-DEFAULT}.',
    );
    vi.unstubAllEnvs();
  });

  test.each([
    [{ s: {} }, 'task.mcpServers.s needs either a command or a url'],
    [{ s: { command: 'x', url: 'y' } }, 'task.mcpServers.s needs either a command or a url'],
    [{ s: { command: 'x', args: 'y' } }, 'task.mcpServers.s.args has a wrong value; allowed: texts.'],
    [{ s: { url: 'http://example.org' } }, 'addressed by http, which anyone on the network path can read'],
    ['no-such-file.json', 'no-such-file.json'],
    [{ a: hostile(), b: hostile('rubbish') }, '"b" and "a" both have a tool "echo". Give the server a prefix'],
  ])('%j: one sentence', async (servers, sentence) => {
    await expect(open(servers)).rejects.toThrow(sentence);
  });

  test('examples/mcp.yaml and examples/mcp.ts', async () => {
    const config = parseTrainConfig(readFileSync('examples/mcp.yaml', 'utf8'), { source: 'mcp.yaml' });
    expect(config.rollout.multiTurn.constrainToolCalls).toBe(true);
    expect(await names(config.task.mcpServers)).toEqual(['calculator', 'get-sum']);
    const { task, close } = await import('../../examples/mcp.ts');
    const context = toolContext({ signal: AbortSignal.timeout(30_000) });
    expect(await task.tools[0].execute({ a: 1, b: 2 }, context)).toBe('The sum of 1 and 2 is 3.');
    await close();
  });
});
