/**
 * A session with an MCP server. It connects when it is first used, and reconnects a limited number of times after losing the connection.
 */

import { describe, InputError, isInPage } from '../../errors.ts';
import { isObject } from '../../tasks/toolSchema.ts';
import { type Connection, openConnection, statusOf, untilAborted } from './connection.ts';
import type { McpServer, McpStats } from './types.ts';
import { LONGEST_TIMER_MS } from '../../tasks/timer.ts';

/** Options of a session. */
export interface SessionOptions {
  /** Name of the server, for messages. */
  name: string;
  headers: Readonly<Record<string, string>>;
  connectTimeoutMs: number;
  stats: McpStats;
  /** Replaces secrets in a message by ***. */
  redact(text: string): string;
}

/** After this many losses of the connection in a row, without an answered call between them, the session stops reconnecting. */
const MAX_LOSSES = 3;
/** Maximum number of pages that are read from tools/list. */
const MAX_PAGES = 100;

/** A session that connects when it is used and reconnects after a loss. */
export class McpSession {
  readonly #server: McpServer;
  readonly #options: SessionOptions;
  #connection: Promise<Connection> | undefined;
  readonly #lost = new WeakSet<Connection>();
  #losses = 0;
  #isClosed = false;

  constructor(server: McpServer, options: SessionOptions) {
    this.#server = server;
    this.#options = options;
  }

  /**
   * Lists the server's tools page by page, and stops once there are more than `most`. Throws InputError if the server cannot be reached.
   */
  async listTools(most: number): Promise<unknown[]> {
    const { connectTimeoutMs: timeout } = this.#options;
    try {
      const connection = await this.#open();
      const tools: unknown[] = [];
      let cursor: unknown;
      for (let page = 0; page < MAX_PAGES && tools.length <= most; page++) {
        const params = typeof cursor === 'string' ? { cursor } : {};
        const result = await connection.request('tools/list', params, { timeout });
        if (!isObject(result) || !Array.isArray(result['tools'])) throw new Error('tools/list gave no list of tools');
        tools.push(...(result['tools'] as unknown[]));
        cursor = result['nextCursor'];
        if (cursor === undefined || cursor === null || cursor === '') return tools;
      }
      return tools;
    } catch (error) {
      throw new InputError(`${this.#words(error)}.`);
    }
  }

  /**
   * Calls a tool and returns its result. Retries once if it is certain that the server has not run the call. Any other failure throws an
   * Error, whose message the model reads.
   */
  async call(name: string, args: Record<string, unknown>, signal: AbortSignal): Promise<unknown> {
    const { stats } = this.#options;
    const options = { signal, timeout: LONGEST_TIMER_MS, onprogress: () => void stats.progress++ };
    for (let tries = 1; ; tries++) {
      const connection = await untilAborted(this.#alive(), signal, 'the call was cancelled');
      try {
        const result = await connection.request('tools/call', { name, arguments: args }, options);
        this.#losses = 0;
        return result;
      } catch (error) {
        if (signal.aborted) throw error;
        if (isAnswer(error)) {
          this.#losses = 0;
          const message = this.#options.redact(describe(error).replace(/^MCP error -?\d+: /, ''));
          return { content: [{ type: 'text', text: message }], isError: true };
        }
        const isUnseen = wasNotSeen(error);
        const isLost = isUnseen || connection.isClosed || isClosedError(error) || isNetworkError(error);
        if (isLost) await this.#lose(connection);
        if (!isUnseen || tries > 1) throw new Error(this.#words(error), { cause: error });
      }
    }
  }

  /** Closes the session. Resolves when the connection is closed and a server process has ended. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const connection = await this.#connection?.catch(() => undefined);
    this.#connection = undefined;
    await connection?.close().catch(() => {});
  }

  /** Returns the connection, and opens it first if needed. An attempt that fails counts as a loss. */
  #open(): Promise<Connection> {
    const { headers, connectTimeoutMs: timeoutMs, stats } = this.#options;
    return (this.#connection ??= openConnection(this.#server, { headers, timeoutMs, stats }).then(
      (connection) => {
        if (this.#losses > 0) stats.reconnects++;
        return connection;
      },
      (error: unknown) => {
        this.#connection = undefined;
        this.#losses++;
        throw error;
      },
    ));
  }

  /** Returns an open connection, and reconnects if the last one was lost. */
  async #alive(): Promise<Connection> {
    const server = `the MCP server "${this.#options.name}"`;
    if (this.#isClosed) throw new Error(`${server} is closed`);
    if (this.#losses >= MAX_LOSSES) throw new Error(`${server} is gone: it was lost ${this.#losses} times in a row`);
    const connection = await this.#open().catch((error: unknown) => {
      throw new Error(this.#words(error), { cause: error });
    });
    if (!connection.isClosed) return connection;
    await this.#lose(connection);
    return this.#alive();
  }

  /** Records the loss of a connection. Several failed calls on one connection count as one loss. */
  async #lose(connection: Connection): Promise<void> {
    if (this.#lost.has(connection)) return;
    this.#lost.add(connection);
    this.#connection = undefined;
    this.#losses++;
    this.#options.stats.lost++;
    await connection.close().catch(() => {});
  }

  #words(error: unknown): string {
    const { name, redact } = this.#options;
    const server = `the MCP server "${name}"`;
    if (error instanceof InputError) return redact(error.message.replace(/\.$/, ''));
    const status = statusOf(error);
    if (status === 401 || status === 403) return `${server} answers HTTP ${status}: it needs other \`headers\``;
    if (status !== undefined && status >= 300 && status < 400)
      return `${server} answers HTTP ${status}: it sends to another host, which is not followed. Name that address`;
    if (status !== undefined) return `${server} answers HTTP ${status}`;
    if (isClosedError(error) || isClosedPipe(error)) return `${server} closed the connection before it answered`;
    if (isNetworkError(error)) return `${server} cannot be reached (${redact(causeOf(error))})${inPage()}`;
    return `${server} failed: ${redact(describe(error).slice(0, 500))}`;
  }
}

/** Returns a hint for web pages: a server on another origin must allow the page by CORS. */
const inPage = (): string =>
  isInPage()
    ? '; from a page it must allow this origin by CORS and expose the header Mcp-Session-Id, see docs/guides/mcp.md'
    : '';

function causeOf(error: unknown): string {
  const { cause } = error as { cause?: { code?: string } };
  return cause?.code ?? describe(error).slice(0, 200);
}

/** True for a JSON-RPC error with which the server answered. */
const isAnswer = (error: unknown): boolean => isMcpError(error) && !isClosedError(error);
const isMcpError = (error: unknown): boolean => error instanceof Error && error.name === 'McpError';
const isClosedError = (error: unknown): boolean =>
  isMcpError(error) && (error as { code?: number }).code === -32000 && /Connection closed/.test(describe(error));

const isNetworkError = (error: unknown): boolean => error instanceof TypeError || isClosedPipe(error);
const isClosedPipe = (error: unknown): boolean =>
  /^(Not connected|the process has ended|write E\w+)/.test(describe(error));

/**
 * True if it is certain that the server has not run the call: the server was not reached, or no longer knew the session, for example after
 * a restart.
 */
const wasNotSeen = (error: unknown): boolean =>
  [400, 404].includes(statusOf(error) ?? 0) ||
  /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN)$/.test(causeOf(error)) ||
  /^(Not connected|the process has ended)/.test(describe(error));
