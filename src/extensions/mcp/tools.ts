/** Tools of an MCP server as tools of a task. */

import { InputError } from '../../errors.ts';
import { isLoopback } from '../../model/checkpoint/loopback.ts';
import type { Tool, ToolContext, TruncateSide } from '../../tasks/tool.ts';
import { isObject } from '../../tasks/toolSchema.ts';
import { limiter } from '../../tasks/limiter.ts';
import { resultText } from './result.ts';
import { cutText, type Notes, readInputSchema } from './schema.ts';
import { type Held, SampleSessions } from './sampleSessions.ts';
import { McpSession, type SessionOptions } from './session.ts';
import type { McpCommand, McpServer, McpStats } from './types.ts';

/** Options of `mcpTools`. */
export interface McpOptions {
  /** Name of the server in messages. Default: its host or command. */
  name?: string;
  /** Headers sent with every request to a URL; they appear in no message. */
  headers?: Readonly<Record<string, string>>;
  /** Tools to use, by the server's names. Default: all. */
  include?: readonly string[];
  /** Prefix of every tool name, e.g. 'git_'. */
  prefix?: string;
  /** Time limit of a call, in milliseconds. Default: rollout.multiTurn.toolTimeoutS. */
  timeoutMs?: number;
  /** Characters of a result that the model reads. Default: rollout.multiTurn.maxToolResponseLength. */
  maxResponseLength?: number;
  /** Part of a long result to remove. Default: the run's setting. */
  truncateSide?: TruncateSide;
  /** Opens a separate session for each sample, for servers that keep state. Default: false, one for all samples. */
  perSample?: boolean;
  /** Sessions open at the same time with `perSample`; calls of other samples wait, within their time limit. Default: 16. */
  maxSessions?: number;
  /** Calls in flight at the same time; others wait, within their time limit. Default: 16. */
  maxConcurrency?: number;
  /** Maximum number of tools that a server may list, unless `include` selects some. Default: 128. */
  maxTools?: number;
  /** Time limit to connect and to list tools, in milliseconds. Default: 30,000. */
  connectTimeoutMs?: number;
  /** Allow http to other machines, although others on the network can read it. Default: false. */
  allowHttp?: boolean;
}

/** Result of `mcpTools`: the tools, and the connection behind them. */
export interface McpTools {
  /** Tools that the server listed and `include` selects. */
  tools: Tool[];
  /** Names, descriptions and schemas that were dropped or shortened, one sentence each. */
  notes: readonly string[];
  /** Live counters, updated while the tools are used. */
  stats: Readonly<McpStats>;
  /** Ends all sessions; resolves when the server's processes have ended. Can be called more than once. */
  close(): Promise<void>;
}

const MAX_DESCRIPTION = 2000;
/** Characters to keep at each end of a result without `maxResponseLength`: more than runs show a model. */
const KEPT_CHARACTERS = 2 ** 20;
/** Maximum number of tools to read, whatever `include` selects. */
const MAX_LISTED = 2 ** 14;

/**
 * Connects to an MCP server and returns the tools that it lists now. Call `close` after the last use.
 * A URL uses Streamable HTTP, otherwise SSE. A command starts a process over stdio, in Node.
 *
 *   const { tools, close } = await mcpTools('https://host/mcp', { headers: { authorization: `Bearer ${token}` } });
 *   const { tools, close } = await mcpTools({ command: 'npx', args: ['-y', '@modelcontextprotocol/server-everything'] });
 *
 * Throws InputError if the SDK is not installed, if the server does not start, cannot be reached or does not answer in time,
 * and if the list of tools cannot be used.
 */
export async function mcpTools(server: string | URL | McpCommand, options: McpOptions = {}): Promise<McpTools> {
  const address = addressOf(server, options);
  const { name = nameOf(address), maxTools = 128 } = options;
  const { maxSessions = 16, maxConcurrency = 16, connectTimeoutMs = 30_000 } = options;
  for (const [key, value] of Object.entries({ maxTools, maxSessions, maxConcurrency, connectTimeoutMs }))
    if (!(value >= 1)) throw new InputError(`MCP server "${name}": ${key} is ${value}; allowed: 1 or more.`);
  const stats = noStats();
  const { headers = {} } = options;
  const session: SessionOptions = { name, headers, connectTimeoutMs, stats, redact: redactor(address, headers) };
  const shared = new McpSession(address, session);
  try {
    const listed = await shared.listTools(options.include ? MAX_LISTED : maxTools);
    const notes: string[] = [];
    const chosen = choose(listed, name, options, maxTools);
    const sessions = options.perSample
      ? new SampleSessions(() => new McpSession(address, session), maxSessions)
      : undefined;
    if (sessions) await shared.close();
    const limit = limiter(maxConcurrency);
    const call = (tool: string, args: Record<string, unknown>, { signal, state }: ToolContext) =>
      limit(async () => {
        signal.throwIfAborted(); // the time limit may have passed during the wait
        const used = sessions ? await sessions.of(state as Held, signal) : shared;
        stats.calls++;
        try {
          const text = resultText(await used.call(tool, args, signal), options.maxResponseLength ?? KEPT_CHARACTERS);
          if (text.startsWith('Error')) stats.errors++;
          return text;
        } catch (error) {
          stats.errors++;
          throw error;
        }
      });
    const { timeoutMs, maxResponseLength, truncateSide } = options;
    const limits = Object.entries({ timeoutMs, maxResponseLength, truncateSide }).filter(
      ([, limit]) => limit !== undefined,
    );
    const tools = readTools(chosen, name, options, notes).map(({ serverName, ...tool }): Tool => ({
      ...tool,
      ...Object.fromEntries(limits),
      execute: (args, context) => call(serverName, args, context),
      ...(sessions && {
        create: ({ sampleId }) => sessions.hold(sampleId),
        release: (held) => sessions.release(held as Held),
      }),
    }));
    const close = async () => void (await Promise.all([shared.close(), sessions?.close()]));
    return { tools, notes, stats, close };
  } catch (error) {
    await shared.close();
    throw error;
  }
}

/** Returns the server's address. Throws InputError if it is invalid, or if others could read the traffic. */
function addressOf(server: string | URL | McpCommand, { allowHttp = false, headers }: McpOptions): McpServer {
  if (typeof server !== 'string' && !(server instanceof URL)) {
    if (typeof server?.command === 'string' && server.command !== '') return server;
    throw new InputError('An MCP server needs a `command` or a URL. Give { command, args } or "https://...".');
  }
  const url = URL.canParse(String(server)) ? new URL(String(server)) : undefined;
  if (!url || !/^https?:$/.test(url.protocol))
    throw new InputError(
      'The address of an MCP server is not an http or https URL. To start a program, give { command, args }.',
    );
  if (url.username !== '' || url.password !== '')
    throw new InputError(
      `The address of the MCP server ${url.host} contains a name or a password. Send it in \`headers\`.`,
    );
  const isLocal = isLoopback(url.hostname);
  if (url.protocol === 'http:' && !isLocal && !allowHttp)
    throw new InputError(
      `The MCP server ${url.host} is addressed by http, which anyone on the network path can read. Use https, or set allowHttp.`,
    );
  for (const [key, value] of Object.entries(headers ?? {}))
    if (!/^[\w!#$%&'*+.^`|~-]+$/.test(key) || /[\r\n\0]/.test(value))
      throw new InputError(
        `The MCP server ${url.host}: \`headers\` has a name or a value that HTTP cannot send, at "${key}".`,
      );
  return url;
}

const nameOf = (address: McpServer): string =>
  address instanceof URL ? address.host : (address.command.split(/[\\/]/).at(-1) ?? '');

/** Returns a function that removes the values of headers, environment and query from a text. */
function redactor(address: McpServer, headers: Readonly<Record<string, string>>): (text: string) => string {
  const given = address instanceof URL ? [...address.searchParams.values()] : Object.values(address.env ?? {});
  const values = [...Object.values(headers), ...given].flatMap((value) => [value, ...value.split(/\s+/)]);
  const secrets = [...new Set(values)].filter(({ length }) => length >= 4).sort((a, b) => b.length - a.length);
  return (text) => secrets.reduce((all, secret) => all.replaceAll(secret, '***'), text);
}

const noStats = (): McpStats => ({
  calls: 0,
  errors: 0,
  connections: 0,
  lost: 0,
  reconnects: 0,
  refusedRequests: 0,
  listChanged: 0,
  progress: 0,
  badMessages: 0,
});

/** Returns the selected tools. Throws InputError if a selected tool is missing, or if there are too many. */
function choose(listed: unknown[], server: string, { include }: McpOptions, maxTools: number): unknown[] {
  const named = new Map(listed.flatMap((tool) => (isObject(tool) ? [[tool['name'], tool] as const] : [])));
  const missing = include?.find((name) => !named.has(name));
  if (missing !== undefined)
    throw new InputError(
      `The MCP server "${server}" has no tool "${missing}". There is ${cutText([...named.keys()].join(', '), 500)}.`,
    );
  const chosen = include ? include.map((name) => named.get(name)) : listed;
  if (chosen.length > maxTools)
    throw new InputError(
      `The MCP server "${server}" lists more than ${maxTools} tools. Choose some by \`include\`, or raise maxTools.`,
    );
  return chosen;
}

interface ReadTool extends Pick<Tool, 'name' | 'description' | 'parameters'> {
  /** Name of the tool on the server. */
  serverName: string;
}

/** Reads the listed tools; skips tools that cannot be used, with a note. */
function readTools(listed: unknown[], server: string, { prefix = '' }: McpOptions, notes: string[]): ReadTool[] {
  const tools: ReadTool[] = [];
  for (const tool of listed) {
    const serverName = isObject(tool) ? tool['name'] : undefined;
    if (!isObject(tool) || typeof serverName !== 'string' || serverName === '') {
      notes.push(`${server}: a tool without a name is skipped`);
      continue;
    }
    const keywords: Notes = new Map();
    const name = `${prefix}${serverName}`.replace(/[^\w.-]/g, '_').slice(0, 64);
    const shown = cutText(serverName, 64);
    const parameters = readInputSchema(tool['inputSchema'] ?? {}, keywords);
    if (!parameters || tools.some((other) => other.name === name)) {
      notes.push(
        `${server}: tool "${shown}" is skipped: ${parameters ? 'its name is taken' : 'its schema is not of an object'}`,
      );
      continue;
    }
    if (name !== `${prefix}${serverName}`) notes.push(`${server}: tool "${shown}" is named "${name}"`);
    const description = typeof tool['description'] === 'string' ? tool['description'] : '';
    if (description.length > MAX_DESCRIPTION)
      notes.push(`${server}: the description of "${name}" is truncated from ${description.length} characters`);
    if (keywords.size > 0) notes.push(`${server}: "${name}": not enforced by constrained calls: ${placesOf(keywords)}`);
    tools.push({ name, description: cutText(description, MAX_DESCRIPTION), parameters, serverName });
  }
  return tools;
}

const placesOf = (notes: Notes): string =>
  [...notes].map(([keyword, places]) => (places === 1 ? keyword : `${keyword} (${places} places)`)).join(', ');
