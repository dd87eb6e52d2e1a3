/** Opens a connection to an MCP server by the official SDK, which is loaded when it is first needed. */

import type { RequestOptions } from '@modelcontextprotocol/sdk/shared/protocol.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import type { jsonSchemaValidator, JsonSchemaValidatorResult } from '@modelcontextprotocol/sdk/validation/types.js';
import { describe, InputError } from '../../errors.ts';
import { HttpRequests } from './http.ts';
import { ProcessTransport } from './stdio.ts';
import type { McpServer, McpStats } from './types.ts';
import { LONGEST_TIMER_MS } from '../../tasks/timer.ts';

/** An open connection to an MCP server. */
export interface Connection {
  /** Sends a request and returns its result without validation. */
  request(method: string, params: Record<string, unknown>, options: RequestOptions): Promise<unknown>;
  /** True after the connection has ended for any reason. */
  isClosed: boolean;
  close(): Promise<void>;
}

interface ConnectionOptions {
  headers: Readonly<Record<string, string>>;
  timeoutMs: number;
  stats: McpStats;
}

/** Loads the MCP SDK. Throws InputError if it is not installed. */
async function loadSdk() {
  try {
    const [client, types] = await Promise.all([
      import('@modelcontextprotocol/sdk/client/index.js'),
      import('@modelcontextprotocol/sdk/types.js'),
    ]);
    return { ...client, ...types };
  } catch (error) {
    throw new InputError(
      `MCP tools need the package @modelcontextprotocol/sdk, which is not installed (${describe(error).split('\n')[0]}). ` +
        'Install it with "npm install @modelcontextprotocol/sdk".',
    );
  }
}

/**
 * Accepts every tool output. The SDK's default validator compiles schemas to code, which web pages with a content security policy forbid.
 */
const NO_VALIDATOR: jsonSchemaValidator = {
  getValidator<T>() {
    return (data): JsonSchemaValidatorResult<T> => ({ valid: true, data: data as T, errorMessage: undefined });
  },
};

/**
 * Opens a connection: to a local process, or to a URL by Streamable HTTP. If a URL does not support that, tries SSE, as the MCP
 * specification says. Rethrows errors of the SDK.
 */
export async function openConnection(server: McpServer, options: ConnectionOptions): Promise<Connection> {
  if (!(server instanceof URL)) return connect(new ProcessTransport(server), options);
  try {
    return await connectStreamable(server, options);
  } catch (error) {
    if (![400, 404, 405].includes(statusOf(error) ?? 0)) throw error;
    const { SSEClientTransport } = await import('@modelcontextprotocol/sdk/client/sse.js');
    const sse = new SSEClientTransport(server, { requestInit: { headers: { ...options.headers } } });
    return await connect(sse, options, true).catch(() => {
      throw error;
    });
  }
}

async function connectStreamable(url: URL, options: ConnectionOptions): Promise<Connection> {
  const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
  const requests = new HttpRequests((id) =>
    transport.onmessage?.({ jsonrpc: '2.0', id, error: { code: -32000, message: 'Connection closed' } }),
  );
  const { headers } = options;
  const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers }, fetch: requests.fetch });
  transport.onmessage = (message) => {
    if ('id' in message && message.id !== undefined && !('method' in message)) requests.answered(message.id);
  };
  transport.onerror = ({ message }) => {
    if (/^Maximum reconnection attempts/.test(message)) requests.giveUpResuming();
  };
  const connection = await connect(transport, options);
  const { close } = connection;
  // Before the connection closes, the server is told that the session has ended, so that it can free the session immediately.
  connection.close = async () => {
    await untilAborted(transport.terminateSession(), AbortSignal.timeout(END_SESSION_MS), 'no answer').catch(() => {});
    await close();
  };
  return connection;
}

const END_SESSION_MS = 2000;

/** Returns the result of `work`. Rejects with `message` if the signal aborts first. */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal, message: string): Promise<T> {
  let stop = () => {};
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(new Error(message));
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
  });
  return Promise.race([work, aborted]).finally(() => signal.removeEventListener('abort', stop));
}

/**
 * Connects a client by the given transport.
 * @param isOneStream true if all answers arrive on one stream (SSE), so that an error of this stream ends the connection
 */
async function connect(
  transport: Transport,
  { timeoutMs, stats }: ConnectionOptions,
  isOneStream = false,
): Promise<Connection> {
  const { Client, McpError, ErrorCode, ResultSchema } = await loadSdk();
  const client = new Client({ name: 'webgrpo', version: '0' }, { jsonSchemaValidator: NO_VALIDATOR });
  const connection: Connection = {
    request: (method, params, given) => client.request({ method, params }, ResultSchema, given),
    isClosed: false,
    close: () => transport.close(),
  };
  let isOpen = false;
  client.onclose = () => (connection.isClosed = true);
  client.onerror = () => {
    if (isOpen && isOneStream) void transport.close();
    else stats.badMessages++;
  };
  client.fallbackNotificationHandler = ({ method }) => {
    if (method === 'notifications/tools/list_changed') stats.listChanged++;
    return Promise.resolve();
  };
  client.fallbackRequestHandler = ({ method }) => {
    stats.refusedRequests++;
    throw new McpError(ErrorCode.MethodNotFound, `this client does not offer ${method}`);
  };
  try {
    // The time limit is enforced here, not by the SDK: an SSE stream can stay open without ever sending the address for requests.
    const connecting = client.connect(transport, { timeout: LONGEST_TIMER_MS });
    await untilAborted(connecting, AbortSignal.timeout(timeoutMs), `it did not answer in ${timeoutMs / 1000} s`);
  } catch (error) {
    await transport.close().catch(() => {});
    throw error;
  }
  isOpen = true;
  stats.connections++;
  return connection;
}

/** Returns the HTTP status that an error of the SDK contains; undefined if it contains none. */
export function statusOf(error: unknown): number | undefined {
  const { code } = (error ?? {}) as { code?: unknown };
  return typeof code === 'number' && code >= 100 && code < 600 ? code : undefined;
}
