/** Tests MCP tools: a real server over stdio and HTTP, and servers that misbehave. docs/guides/mcp.md has the table of faults. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { text } from 'node:stream/consumers';
import { join, resolve } from 'node:path';
import { build } from 'vite';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { type McpOptions, type McpTools, mcpTools } from '../../src/extensions/mcp/index.ts';
import type { Tool } from '../../src/tasks/tool.ts';
import { EVERYTHING, serveEverything } from '../everythingServer.ts';
import { problem, run, tokenizer } from '../scriptedTurns.ts';
import { holdTimers } from '../timers.ts';
import { portOf } from '../hubServer.ts';

const everything = { command: process.execPath, args: [EVERYTHING] };
const hostile = (...args: string[]) => ({ command: process.execPath, args: ['test/mcpServer.mjs', ...args] });

const isFull = process.env['FULL_TESTS'] === '1';
let folder: string;
const opened: McpTools[] = [];
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'webgrpo-mcp-'));
});
afterEach(async () => {
  vi.unstubAllGlobals();
  await Promise.all(opened.splice(0).map((one) => one.close()));
  // After the server has ended, none of webgrpo's listeners may remain.
  for (const event of ['exit', 'SIGINT', 'SIGTERM', 'SIGHUP'])
    expect(
      process
        .listeners(event as 'exit')
        .map(String)
        .filter((text) => text.includes('killAll')),
    ).toEqual([]);
});
afterAll(() => rm(folder, { recursive: true }));

async function open(server: Parameters<typeof mcpTools>[0], options?: McpOptions): Promise<McpTools> {
  const tools = await mcpTools(server, options);
  opened.push(tools);
  return tools;
}

const ROOM = { maxResponseLength: 900, contextLength: 1000, maxToolResponseLength: 400, toolTimeoutMs: 30_000 };

/** Calls a tool once in an agent loop. Returns the text that the model reads. */
async function callOnce(tools: Tool[], name: string, args: unknown = {}, more: Parameters<typeof run>[1] = {}) {
  const call = `<tool_call>${JSON.stringify({ name, arguments: args })}</tool_call>`;
  const output = await run([call, '#### 1'], { tools, ...more, limits: { ...ROOM, ...more.limits } });
  const [message] = output.messages.filter(({ role }) => role === 'tool');
  return { ...output, text: message?.content };
}

/** True if the process has ended and its exit was received by this process. */
const isReaped = (pid: number): boolean => {
  try {
    return !process.kill(pid, 0);
  } catch {
    return true;
  }
};

const isRunning = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
    if (!existsSync('/proc')) return true;
    // A zombie has ended too: its parent has not yet read its exit code.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
};
const until = (what: () => boolean) => expect.poll(what).toBe(true);
const answers = async ({ tools }: McpTools) => (await callOnce(tools, 'echo', { a: 1 })).text;
const WELL = '{"a":1}';
/** A time limit in milliseconds, and its message. Timers are simulated, so no test waits for it. */
const LIMIT = { timeoutMs: 1500, passed: 'Error: fault did not answer in 1.5 s' };

describe('a real server', () => {
  const args = { message: 'hi' };

  test('over stdio: its tools, schemas and results', async () => {
    const { tools, stats, notes } = await open(everything);
    expect(tools.map(({ name }) => name)).toEqual(expect.arrayContaining(['echo', 'get-sum', 'get-tiny-image']));
    expect(notes).toEqual(['node: "gzip-file-as-resource": not enforced by constrained calls: format']);
    const text = async (name: string, args = {}) => (await callOnce(tools, name, args)).text;
    expect(await text('echo', args)).toBe('Echo: hi');
    expect(await text('get-sum', { a: 1 })).toBe('Error: get-sum: argument "b" is missing');
    expect(await text('get-annotated-message', { messageType: 'warning' })).toBe(
      'Error: get-annotated-message: argument "messageType" must be one of error, success, debug',
    );
    expect(await text('get-tiny-image')).toContain('[image: image/png, ');
    expect(await text('get-structured-content', { location: 'Chicago' })).toContain('"temperature"');
    expect(await text('get-resource-reference', { resourceType: 'Text', resourceId: 1 })).toContain(
      '[resource demo://',
    );
    expect(await text('get-resource-links', { count: 2 })).toContain('[link to ');
    expect(stats).toMatchObject({ calls: 5, errors: 0, connections: 1, badMessages: 0 });
  });

  /** Expects an error text for the call in which the server dies, and then one that says that the server is unreachable. */
  async function killedInCall(url: string, stop: () => Promise<void>): Promise<void> {
    const { tools, stats } = await open(url, { name: 'all' });
    const long = callOnce(tools, 'trigger-long-running-operation', { duration: 600, steps: 6000 });
    await until(() => stats.progress > 0);
    await stop();
    expect((await long).text).toBe('Error: the MCP server "all" closed the connection before it answered');
    expect((await callOnce(tools, 'echo', args)).text).toBe(
      'Error: the MCP server "all" cannot be reached (ECONNREFUSED)',
    );
    expect(stats).toMatchObject({ connections: 1, lost: 1, errors: 2 });
  }

  test('over Streamable HTTP, killed in a call; with --full over SSE too, where a server has nothing else', async () => {
    for (const kind of isFull ? ['streamableHttp', 'sse'] : ['streamableHttp']) {
      const { url, stop } = await serveEverything(kind);
      try {
        const { tools, stats, close } = await open(url, { prefix: 'all_', include: ['echo', 'get-sum'] });
        expect(tools.map(({ name }) => name)).toEqual(['all_echo', 'all_get-sum']);
        expect((await callOnce(tools, 'all_get-sum', { a: 1, b: 2 })).text).toBe('The sum of 1 and 2 is 3.');
        expect(stats).toMatchObject({ calls: 1, errors: 0, connections: 1 });
        await close();
        if (kind === 'streamableHttp') await killedInCall(url, stop);
      } finally {
        await stop();
      }
    }
  });
});

describe('a server that misbehaves', () => {
  test('dies in a call: an error text, and the next call starts a new process; after three in a row no more', async () => {
    const mcp = await open(hostile('dies'));
    const { text, trajectory } = await callOnce(mcp.tools, 'fault');
    expect(text).toBe('Error: the MCP server "node" closed the connection before it answered');
    expect(trajectory).toMatchObject({ numToolErrors: 1, stopReason: 'completed' });
    expect(await answers(mcp)).toBe(WELL);
    for (let i = 0; i < 3; i++) await callOnce(mcp.tools, 'fault');
    expect(await answers(mcp)).toBe('Error: the MCP server "node" is gone: it was lost 3 times in a row');
    expect(mcp.stats).toMatchObject({ calls: 6, errors: 5, lost: 4, reconnects: 3 });
  });

  test('dies in the calls of eight samples: each reads an error text, and a new process starts', async () => {
    const mcp = await open(hostile('dies in the eighth'));
    const eight = await Promise.all(Array.from({ length: 8 }, () => callOnce(mcp.tools, 'fault')));
    expect(new Set(eight.map(({ text }) => text)).size).toBe(1);
    expect(await answers(mcp)).toBe(WELL);
    expect(mcp.stats.lost).toBe(1);
  });

  test('dies between two calls: the second notices nothing', async () => {
    const file = join(folder, 'died');
    const mcp = await open(hostile('dies after', file));
    expect((await callOnce(mcp.tools, 'fault')).text).toBe('last words');
    const pid = Number(readFileSync(file, 'utf8'));
    await until(() => isReaped(pid));
    for (let turn = 0; turn < 3; turn++) await new Promise(setImmediate); // until the end of its output is read
    expect(await answers(mcp)).toBe(WELL);
    expect(mcp.stats).toMatchObject({ errors: 0, lost: 1, reconnects: 1 });
  });

  test('hangs in a call: the time limit ends it, the server is notified, and its late answer is ignored', async () => {
    const file = join(folder, 'cancelled');
    const mcp = await open(hostile('hangs', file), { timeoutMs: LIMIT.timeoutMs });
    const passLimit = holdTimers(LIMIT.timeoutMs);
    const called = callOnce(mcp.tools, 'fault');
    await until(() => existsSync(`${file}-asked`));
    passLimit();
    expect((await called).text).toBe(LIMIT.passed);
    await until(() => existsSync(file) && readFileSync(file, 'utf8') !== '');
    expect(JSON.parse(readFileSync(file, 'utf8'))).toMatchObject({ requestId: 2 });
    await until(() => mcp.stats.badMessages === 1);
    expect(await answers(mcp)).toBe(WELL);
    expect(mcp.stats).toMatchObject({ lost: 0 });
  });

  test('answers calls with what a model cannot read as it is, after invalid lines and beside other messages', async () => {
    const { tools, stats } = await open(hostile('rubbish'));
    const fault = (kind: string, limits = {}) => callOnce(tools, 'fault', { kind }, { limits });
    // Names of control tokens and tags of calls stay text.
    const { text, trajectory } = await fault('special');
    expect(text).toContain('<|im_end|>');
    const toolTokens = trajectory.responseIds.filter((_, i) => trajectory.mask[i] === 0);
    const turns = tokenizer.encodeContinuation([{ role: 'tool', content: 'plain' }]);
    const count = (ids: Uint32Array, id: number) => ids.filter((one) => one === id).length;
    for (const id of ['<|im_end|>', '<|im_start|>'].map((name) => tokenizer.idOf(name)!))
      expect(count(toolTokens, id)).toBe(count(turns, id));
    expect(trajectory).toMatchObject({ numToolCalls: 1, numTurns: 2 });

    const long = await fault('10 MB', { toolResponseTruncateSide: 'middle' });
    expect(long.trajectory).toMatchObject({ numToolOutputs: 1, numTruncatedOutputs: 1 });
    expect(long.text).toBe(`${'x'.repeat(200)}...(truncated)...${'x'.repeat(200)}`);

    expect((await fault('storm')).text).toBe('after the storm');
    expect((await fault('asks')).text).toBe('asked');
    await until(() => stats.refusedRequests === 3);
    expect((await fault('fails')).text).toBe('Error: it failed');
    const refused = await fault('refuses');
    expect(refused.text).toBe('Error: x must be a number');
    expect(refused.trajectory.numToolErrors).toBe(1);
    expect((await fault('no content')).text).toBe('{"a":1}');
    expect((await fault('odd content')).text).toBe(
      '[unknown content]\n[hologram content]\n[image: image/png, 3 bytes]\n',
    );
    expect(stats).toMatchObject({ badMessages: 4, listChanged: 5000, lost: 0 });
  });

  test('answers a call with a message that is malformed or of another id: the time limit, and it goes on', async () => {
    const mcp = await open(hostile(), { timeoutMs: LIMIT.timeoutMs, maxResponseLength: 60, truncateSide: 'right' });
    const passLimit = holdTimers(LIMIT.timeoutMs);
    for (const kind of ['malformed', 'wrong id']) {
      const before = mcp.stats.badMessages;
      const called = callOnce(mcp.tools, 'fault', { kind });
      await until(() => mcp.stats.badMessages > before);
      passLimit();
      expect((await called).text).toBe(LIMIT.passed);
      expect(await answers(mcp)).toBe(WELL);
    }
    expect((await callOnce(mcp.tools, 'fault', { kind: '10 MB' })).text).toBe(`${'x'.repeat(60)}...(truncated)...`);
  });

  test('sends progress of a call that it answers with a later one', async () => {
    const { tools, stats } = await open(hostile('progress'));
    const called = callOnce(tools, 'fault');
    await until(() => stats.progress === 3);
    await callOnce(tools, 'count'); // the answer to the first call comes with this one
    expect((await called).text).toBe('done');
  });

  test('lists by pages, or without end, or no list, or 10,000', async () => {
    expect((await open(hostile('pages'))).tools).toHaveLength(50);
    expect((await open(hostile('endless pages'))).tools).toHaveLength(0);
    await expect(open(hostile('no list'))).rejects.toThrow(
      'the MCP server "node" failed: tools/list gave no list of tools.',
    );
    await expect(open(hostile('many'))).rejects.toThrow(
      'The MCP server "node" lists more than 128 tools. Choose some by `include`, or raise maxTools.',
    );
    expect((await open(hostile('many'), { include: ['t9999'] })).tools).toHaveLength(1);
    await expect(open(hostile(), { include: ['no'] })).rejects.toThrow(
      'has no tool "no". There is echo, count, fault.',
    );
  });

  test('lists invalid or duplicate names, no objects, a schema 1,000 deep, one in itself, a description of 1 MB', async () => {
    const { tools, notes } = await open(hostile('odd list'), { name: 'odd' });
    const names = ['echo', 'count', 'fault', 'deep', 'cycle', 'long', 'a_b_c', 'x'.repeat(64), 'noSchema'];
    expect(tools.map(({ name }) => name)).toEqual(names);
    expect(notes).toEqual(
      [
        '"deep": not enforced by constrained calls: nested over 16 deep',
        '"cycle": not enforced by constrained calls: a $ref in itself',
        'the description of "long" is truncated from 1048576 characters',
        'tool "a b/c" is named "a_b_c"',
        `tool "${'x'.repeat(64)}..." is named "${'x'.repeat(64)}"`,
        'tool "echo" is skipped: its name is taken',
        'a tool without a name is skipped',
        'tool "noObject" is skipped: its schema is not of an object',
      ].map((note) => `odd: ${note}`),
    );
    expect(JSON.stringify(tools).length).toBeLessThan(8000);
  });

  test('does not start, dies immediately, never answers initialize: one error message each', async () => {
    const none = { command: 'no-such-program' };
    await expect(open(none)).rejects.toThrow(
      'The MCP server "no-such-program" does not start: there is no such program. Check `command`.',
    );
    await expect(open(hostile('dies at once'))).rejects.toThrow(
      'the MCP server "node" closed the connection before it answered.',
    );
    await expect(open(hostile('mute'), { connectTimeoutMs: 200 })).rejects.toThrow('it did not answer in 0.2 s.');
  });

  test('secrets of its environment are in no message', async () => {
    const mcp = await open({ ...hostile('secret'), env: { KEY: 'sk-12345' } });
    expect((await callOnce(mcp.tools, 'fault')).text).toBe('Error: no access with ***');
  });
});

describe('a server over HTTP that misbehaves', () => {
  /** Starts a server whose requests are handled by `answer`. If `answer` returns false, the server sends a default response. */
  async function listen(answer: (message: Asked, response: ServerResponse, request: IncomingMessage) => boolean) {
    const seen: { method: string; headers: IncomingHttpHeaders }[] = [];
    const server = createServer((request, response) => {
      void (async () => {
        const body = await text(request);
        const message = (body === '' ? {} : JSON.parse(body)) as Asked;
        seen.push({ method: message.method ?? request.method!, headers: request.headers });
        if (answer(message, response, request)) return;
        const { id, method } = message;
        if (id === undefined) return void response.writeHead(request.method === 'GET' ? 405 : 202).end();
        const results: Record<string, unknown> = {
          initialize: { protocolVersion: '2025-06-18', capabilities: {}, serverInfo: { name: 'http', version: '1' } },
          'tools/list': { tools: [{ name: 'echo', inputSchema: { type: 'object', additionalProperties: true } }] },
          'tools/call': { content: [{ type: 'text', text: WELL }] },
        };
        response.writeHead(200, { 'content-type': 'application/json', 'mcp-session-id': `s${seen.length}` });
        response.end(JSON.stringify({ jsonrpc: '2.0', id, result: results[method!] }));
      })();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    stops.push(() => {
      server.closeAllConnections();
      server.close();
    });
    return { url: `http://127.0.0.1:${portOf(server)}/mcp?key=sk-query`, seen };
  }
  const stops: (() => void)[] = [];
  afterEach(() => stops.splice(0).forEach((stop) => stop()));
  const headers = { authorization: 'Bearer sk-12345' };

  test.each([
    [401, 'needs other `headers`'],
    [404, 'answers HTTP 404'],
    [500, 'answers HTTP 500'],
  ])('HTTP %i: %s, and no secret in it', async (status, sentence) => {
    const { url } = await listen((_, response) => {
      response.writeHead(status).end(`body with ${headers.authorization}`);
      return true;
    });
    const error = await open(url, { headers }).catch((thrown: Error) => thrown);
    expect(String(error)).toContain(sentence);
    expect(String(error)).not.toMatch(/sk-/);
    expect((error as Error).name).toBe('InputError');
  });

  test('a redirect to another host is not followed, and gets no header', async () => {
    const other = await listen(() => false);
    const { url } = await listen((_, response) => {
      response.writeHead(307, { location: other.url.replace('127.0.0.1', 'localhost') }).end();
      return true;
    });
    await expect(open(url, { headers })).rejects.toThrow(
      'answers HTTP 307: it sends to another host, which is not followed. Name that address.',
    );
    expect(other.seen).toEqual([]);
  });

  test('a session that the server forgot is reopened, and the call sent once more', async () => {
    let forgotten = 1;
    const { url, seen } = await listen(({ method }, response) => {
      const forgets = method === 'tools/call' && forgotten-- > 0;
      if (forgets) response.writeHead(404).end();
      return forgets;
    });
    const mcp = await open(url, { headers });
    expect(await answers(mcp)).toBe(WELL);
    expect(mcp.stats).toMatchObject({ calls: 1, errors: 0, lost: 1, reconnects: 1 });
    expect(new Set(seen.map((request) => request.headers.authorization))).toEqual(new Set([headers.authorization]));
  });

  test.each([
    ['HTTP 500', 500, 'text/plain', 'no', 'answers HTTP 500'],
    ['no JSON', 200, 'application/json', '{"jsonrpc"', 'failed: '],
    ['another id', 200, 'application/json', '{"jsonrpc":"2.0","id":99,"result":{}}', 'closed the connection before'],
    ['a stream that ends', 200, 'text/event-stream', ': nothing\n\n', 'closed the connection before'],
    ['a page', 200, 'text/html', '<!doctype html>', 'failed: '],
  ])('a call is answered by %s: an error text, and it goes on', async (_, status, type, body, sentence) => {
    let faults = 1;
    const { url } = await listen(({ method }, response) => {
      const isFault = method === 'tools/call' && faults-- > 0;
      if (isFault) response.writeHead(status, { 'content-type': type }).end(body);
      return isFault;
    });
    const mcp = await open(url);
    const text = await answers(mcp);
    expect(text).toMatch(/^Error: the MCP server "127.0.0.1:\d+" /);
    expect(text).toContain(sentence);
    expect(await answers(mcp)).toBe(WELL);
  });

  test('a hanging call times out: its request is aborted, and the server is notified', async () => {
    let isEnded = false;
    const { url, seen } = await listen(({ method }, response) => {
      if (method !== 'tools/call') return false;
      response
        .on('close', () => (isEnded = true))
        .writeHead(200, { 'content-type': 'text/event-stream' })
        .flushHeaders();
      return true;
    });
    const { tools } = await open(url, { timeoutMs: 200 });
    expect((await callOnce(tools, 'echo')).text).toBe('Error: echo did not answer in 0.2 s');
    await until(() => isEnded && seen.some(({ method }) => method === 'notifications/cancelled'));
  });

  test('addresses that are refused', async () => {
    for (const [address, sentence] of [
      [
        'http://example.org/mcp',
        'addressed by http, which anyone on the network path can read. Use https, or set allowHttp.',
      ],
      ['https://me:pw@example.org/mcp', 'contains a name or a password. Send it in `headers`.'],
      ['ftp://example.org', 'is not an http or https URL'],
      ['npx server', 'is not an http or https URL'],
    ])
      await expect(open(address)).rejects.toThrow(sentence);
    await expect(open('https://example.org', { headers: { a: 'b\r\nc: d' } })).rejects.toThrow('that HTTP cannot send');
  });
});

interface Asked {
  id?: number;
  method?: string;
}

describe('sessions', () => {
  const numbered = async (tools: Tool[], requestId: string, calls = 2) => {
    const call = '<tool_call>{"name":"count","arguments":{}}</tool_call>';
    const output = await run([...Array<string>(calls).fill(call), '#### 1'], { tools, requestId, limits: ROOM });
    return output.messages.filter(({ role }) => role === 'tool').map(({ content }) => content);
  };

  test('one session for all samples, or one per sample, and at most the allowed number', async () => {
    const shared = await open(hostile());
    expect([await numbered(shared.tools, 'a'), await numbered(shared.tools, 'b')]).toEqual([
      ['1', '2'],
      ['3', '4'],
    ]);
    const own = await open(hostile(), { perSample: true, maxSessions: 2 });
    const ids = ['a', 'b', 'c'];
    expect(await Promise.all(ids.map((id) => numbered(own.tools, id)))).toEqual(ids.map(() => ['1', '2']));
    expect(own.stats).toMatchObject({ connections: 4, calls: 6, errors: 0 }); // one to list
  });

  test('a sample that waits too long for a session reads an error text, and leaves no session', async () => {
    const { tools, stats } = await open(hostile(), { perSample: true, maxSessions: 1 });
    const count = tools.find(({ name }) => name === 'count')!;
    const sample = (sampleId: string) => {
      const state = count.create!({ sampleId, problem });
      const calls = (ms: number) => count.execute({}, { sampleId, problem, state, signal: AbortSignal.timeout(ms) });
      return { calls, ends: () => count.release!(state) };
    };
    const [a, b, c] = ['a', 'b', 'c'].map(sample);
    expect(await a.calls(30_000)).toBe('1');
    await expect(b.calls(50)).rejects.toThrow('no session was free in time');
    await Promise.all([b.ends(), a.ends()]);
    expect(await c.calls(30_000)).toBe('1');
    await c.ends();
    expect(stats.connections).toBe(3); // one to list
  });
});

describe('its processes end', () => {
  /** Milliseconds in which a server's process must end, and again after SIGTERM. */
  const PATIENCE_MS = 1000;
  /** Programs that open an MCP server, which itself starts a process, and then end in different ways. */
  const endings = {
    throw: 'throw new Error("x")',
    'Ctrl-C': 'setInterval(() => {}, 1000)',
    ...(isFull && { exit: 'process.exit(0)' }), // the same event of the process as `throw`
  };

  test('when closed, even a process that ignores signals, including what it has started', async () => {
    const file = join(folder, 'pids');
    const { close } = await open(hostile('child', file));
    const pids = readFileSync(file, 'utf8').split(' ').map(Number);
    expect(pids.map(isRunning)).toEqual([true, true]);
    const passPatience = holdTimers(PATIENCE_MS);
    const closing = close();
    await until(() => (passPatience(), !pids.some(isRunning)));
    await closing;
    const deaf = await open(hostile('deaf'));
    let isClosed = false;
    void deaf.close().then(() => (isClosed = true));
    await until(() => (passPatience(), isClosed));
  });

  test.each(Object.entries(endings))('when the program ends by %s', async (how, end) => {
    const file = join(folder, `pids-${how}`);
    const program = join(folder, `${how}.mjs`);
    const server = { command: process.execPath, args: [resolve('test/mcpServer.mjs'), 'child', file] };
    // The programs import webgrpo/mcp as built JavaScript, because Node 20 reads no TypeScript.
    const code = await bundled();
    writeFileSync(
      program,
      `import { mcpTools } from ${JSON.stringify(code)};\nawait mcpTools(${JSON.stringify(server)});\nconsole.log('open');\n${end};\n`,
    );
    const child = spawn(process.execPath, [program], { stdio: ['ignore', 'pipe', 'ignore'] });
    const exited = once(child, 'exit');
    await once(child.stdout, 'data');
    if (how === 'Ctrl-C') child.kill('SIGINT');
    await exited;
    const pids = readFileSync(file, 'utf8').split(' ').map(Number);
    await until(() => !pids.some(isRunning));
  });
});

/** `webgrpo/mcp` bundled into a file next to the tests. Its packages are still loaded from node_modules. */
let bundle: Promise<string> | undefined;
const bundled = () =>
  (bundle ??= (async () => {
    const outDir = resolve('node_modules/.cache/webgrpo-mcp-test');
    await build({
      configFile: false,
      logLevel: 'silent',
      build: {
        outDir,
        minify: false,
        lib: { entry: 'src/extensions/mcp/index.ts', formats: ['es'], fileName: 'mcp' },
        rolldownOptions: { external: (id) => !/^[./]|^\0/.test(id) },
      },
    });
    return join(outDir, 'mcp.js');
  })());
