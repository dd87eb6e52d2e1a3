/** Offers the tools of an MCP server as tools of a task. */

import { InputError } from '../../errors.ts';
import { isLoopback } from '../../model/checkpoint/loopback.ts';
import type { Tool, ToolContext, TruncateSide } from '../../tasks/tool.ts';
import { isObject } from '../../tasks/toolSchema.ts';
import { isErrorText } from '../../tasks/toolOutput.ts';
import { limiter } from '../../tasks/limiter.ts';
import { resultText } from './result.ts';
import { cutText, type Notes, readInputSchema } from './schema.ts';
import { type Held, SampleSessions } from './sampleSessions.ts';
import { McpSession, type SessionOptions } from './session.ts';
import type { McpCommand, McpServer, McpStats } from './types.ts';

/** Options of `mcpTools`. */
export interface McpOptions {
  /** Name of the server, for messages. Default: the host of its URL or the name of its program. */
  name?: string;
  /** HTTP headers for every request to a URL. Messages never show their values. */
  headers?: Readonly<Record<string, string>>;
  /** Names of the tools to use, as the server lists them. Default: all tools. */
  include?: readonly string[];
  /** Prefix for the names of the server's tools, e.g. 'git_'. */
  prefix?: string;
  /** Time limit of a tool call in milliseconds. Default: rollout.multiTurn.toolTimeoutS. */
  timeoutMs?: number;
  /** Maximum number of characters of a result that the model reads. Default: rollout.multiTurn.maxToolResponseLength. */
  maxResponseLength?: number;
  /** Side at which a result that is too long is truncated. Default: rollout.multiTurn.toolResponseTruncateSide. */
  truncateSide?: TruncateSide;
  /** True to open a separate session per sample, for servers that keep state. Default: false, one session for all samples. */
  perSample?: boolean;
  /**
   * Maximum number of open sessions with `perSample`. Calls of further samples wait; the wait counts towards their time limit. Default: 16.
   */
  maxSessions?: number;
  /** Maximum number of calls in flight. Further calls wait; the wait counts towards their time limit. Default: 16. */
  maxConcurrency?: number;
  /** Maximum number of tools. A server that lists more is an error, unless `include` selects fewer. Default: 128. */
  maxTools?: number;
  /** Time limit in milliseconds for connecting and for listing the tools. Default: 30,000. */
  connectTimeoutMs?: number;
  /** True to allow http:// to other machines, although others on the network can read the traffic. Default: false. */
  allowHttp?: boolean;
}

/** Result of `mcpTools`: the tools, and the connection behind them. */
export interface McpTools {
  /** The server's tools, or those that `include` selects. */
  tools: Tool[];
  /** One sentence for each name, description or schema that was changed, shortened or not used. */
  notes: readonly string[];
  /** Counters, which are updated while the tools are used. */
  stats: Readonly<McpStats>;
  /** Closes all sessions. Resolves when the server's processes have ended. Further calls do nothing. */
  close(): Promise<void>;
}

const MAX_DESCRIPTION = 2000;
/** Number of characters to keep at each end of a result if `maxResponseLength` is not set: more than any run shows to a model. */
const KEPT_CHARACTERS = 2 ** 20;
/** Maximum number of tools that are read from the server if `include` is given. */
const MAX_LISTED = 2 ** 14;

/**
 * Connects to an MCP server and returns the tools that the server currently lists. Call `close` after the last use. A URL is opened by
 * Streamable HTTP, or by SSE if the server does not support that. A command (Node only) is started as a process, with messages over stdin
 * and stdout.
 *
 *   const { tools, close } = await mcpTools('https://host/mcp', { headers: { authorization: `Bearer ${token}` } });
 *   const { tools, close } = await mcpTools({ command: 'npx', args: ['-y', '@modelcontextprotocol/server-everything'] });
 *
 * Throws InputError if the SDK is not installed, if the server does not start, cannot be reached or does not answer in time, and if its
 * list of tools cannot be used.
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
          if (isErrorText(text)) stats.errors++;
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

/** Returns the command or the URL of the server. Throws InputError if it is invalid, or if others on the network could read the traffic. */
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

/** Returns a function that replaces the values of headers, environment variables and URL query parameters in a text by ***. */
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

/** Returns the tools to use. Throws InputError if a tool that `include` names is missing, or if there are too many tools. */
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

/** Converts the tools that the server lists. Skips a tool that cannot be used, and adds a note about it. */
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
