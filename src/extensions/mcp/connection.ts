/** Opens a connection to an MCP server with the official SDK, which is loaded on first use. */

import type { RequestOptions } from '@modelcontextprotocol/sdk/shared/protocol.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import type { jsonSchemaValidator, JsonSchemaValidatorResult } from '@modelcontextprotocol/sdk/validation/types.js';
import { describe, InputError } from '../../errors.ts';
import { HttpRequests } from './http.ts';
import { ProcessTransport } from './stdio.ts';
import type { McpServer, McpStats } from './types.ts';

/** An open connection to an MCP server. */
export interface Connection {
  /** Returns the result of a request, whatever its shape. */
  request(method: string, params: Record<string, unknown>, options: RequestOptions): Promise<unknown>;
  /** True once the connection has ended, for any reason. */
  isClosed: boolean;
  close(): Promise<void>;
}

interface ConnectionOptions {
  headers: Readonly<Record<string, string>>;
  timeoutMs: number;
  stats: McpStats;
}

/** Loads the SDK. Throws InputError if it is not installed. */
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

/** Replaces the SDK's default, which compiles schemas to code. Pages forbid that, so outputs are not checked. */
const NO_VALIDATOR: jsonSchemaValidator = {
  getValidator<T>() {
    return (data): JsonSchemaValidatorResult<T> => ({ valid: true, data: data as T, errorMessage: undefined });
  },
};

/** Connects. A URL without Streamable HTTP is tried as an SSE server, as the specification says. Throws what the SDK throws. */
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
  // Ends the session, so that the server can free it immediately.
  connection.close = async () => {
    await untilAborted(transport.terminateSession(), AbortSignal.timeout(END_SESSION_MS), 'no answer').catch(() => {});
    await close();
  };
  return connection;
}

const END_SESSION_MS = 2000;
/** Milliseconds for time limits of the SDK that must never apply, because another limit does. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Rejects with `message` if the signal aborts first. */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal, message: string): Promise<T> {
  let stop = () => {};
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(new Error(message));
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
  });
  return Promise.race([work, aborted]).finally(() => signal.removeEventListener('abort', stop));
}

/** @param isOneStream true if all answers come by one stream; an error of the stream then ends the connection */
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
    // Not the SDK's time limit, because an SSE stream may stay open without ever naming its endpoint.
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

/** Returns the HTTP status in an error of the SDK. */
export function statusOf(error: unknown): number | undefined {
  const { code } = (error ?? {}) as { code?: unknown };
  return typeof code === 'number' && code >= 100 && code < 600 ? code : undefined;
}
