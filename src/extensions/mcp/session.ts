/** One session with an MCP server: opened on demand and reopened after a loss, a limited number of times. */

import { describe, InputError, isInPage } from '../../errors.ts';
import { isObject } from '../../tasks/toolSchema.ts';
import { type Connection, LONGEST_TIMER_MS, openConnection, statusOf, untilAborted } from './connection.ts';
import type { McpServer, McpStats } from './types.ts';

/** Options of a session. */
export interface SessionOptions {
  /** Name of the server in messages. */
  name: string;
  headers: Readonly<Record<string, string>>;
  connectTimeoutMs: number;
  stats: McpStats;
  /** Removes secrets from a message. */
  redact(text: string): string;
}

/** Losses without an answered call between them, after which no new connection is tried. */
const MAX_LOSSES = 3;
/** Maximum number of pages of tools/list. */
const MAX_PAGES = 100;

/** A session that connects on demand and reconnects after a loss. */
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

  /** Lists tools page by page, until more than `most` are read. Throws InputError if the server cannot be reached. */
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

  /** Returns the result of a call. Retries once if the server cannot have run the call. Otherwise throws an Error that the model reads. */
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

  /** Resolves when the connection is closed and its process has ended. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const connection = await this.#connection?.catch(() => undefined);
    this.#connection = undefined;
    await connection?.close().catch(() => {});
  }

  /** Opens a connection unless there is one. A connection that does not open counts as a loss. */
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

  /** Returns the connection, reopened if it was lost. */
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

  /** Counts a loss once, for any number of calls in flight. */
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

/** Hint for pages: a server on another origin must allow by CORS that the page reads it. */
const inPage = (): string =>
  isInPage()
    ? '; from a page it must allow this origin by CORS and expose the header Mcp-Session-Id, see docs/guides/mcp.md'
    : '';

function causeOf(error: unknown): string {
  const { cause } = error as { cause?: { code?: string } };
  return cause?.code ?? describe(error).slice(0, 200);
}

/** True for a JSON-RPC error that the server sent. */
const isAnswer = (error: unknown): boolean => isMcpError(error) && !isClosedError(error);
const isMcpError = (error: unknown): boolean => error instanceof Error && error.name === 'McpError';
const isClosedError = (error: unknown): boolean =>
  isMcpError(error) && (error as { code?: number }).code === -32000 && /Connection closed/.test(describe(error));

const isNetworkError = (error: unknown): boolean => error instanceof TypeError || isClosedPipe(error);
const isClosedPipe = (error: unknown): boolean =>
  /^(Not connected|the process has ended|write E\w+)/.test(describe(error));

/** True if the server cannot have run the call. It was not reached, or lost the session, as after a restart. */
const wasNotSeen = (error: unknown): boolean =>
  [400, 404].includes(statusOf(error) ?? 0) ||
  /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN)$/.test(causeOf(error)) ||
  /^(Not connected|the process has ended)/.test(describe(error));
