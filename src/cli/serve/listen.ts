/**
 * An HTTP server for JSON. Checks who may send requests (token, origin, host), and limits the size and the duration of a request. Answers
 * with a JSON object or with server-sent events. routes.ts defines the paths.
 */

import { isUtf8 } from 'node:buffer';
import { createHash, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, DeviceLostError, InputError, oneLine } from '../../errors.ts';
import { anthropicError, ApiError, type NamedEvent } from '../../extensions/client/index.ts';
import { jsonDepth } from '../../extensions/sandbox/index.ts';
import { say } from '../run/progress.ts';

export interface HttpRequest {
  /** True if the request has no body. */
  isEmpty?: boolean;
  /** Reads the request's body and parses it as JSON. */
  json(): Promise<unknown>;
  /** Aborts if the client disconnects before the answer is complete. */
  signal: AbortSignal;
  /** Hash of the request's X-Client-Id header or API key; undefined if the request has neither. */
  client?: string | undefined;
}

/** A JSON body, or a stream of server-sent events: without names (`events`), or each named by its type (`named`). */
export type HttpAnswer = { body: unknown } | { events: AsyncIterable<unknown> } | { named: AsyncIterable<NamedEvent> };

/** Handlers of one path, by HTTP method. */
export type Actions = Readonly<Record<string, (request: HttpRequest) => HttpAnswer | Promise<HttpAnswer>>>;

/** Returns the handlers of a path, given by its decoded parts; undefined for an unknown path. Throws ApiError for invalid parts. */
export type Routes = (parts: string[]) => Actions | undefined;

export interface ListenOptions {
  host: string;
  /** Port to listen on; 0 = any free port. */
  port: number;
  token?: string | undefined;
  /** Origins of web pages that are allowed to send requests. */
  allowOrigins?: readonly string[];
  /**
   * Time limits in milliseconds for receiving the headers of a request (headersMs, default 60,000) and all of it (requestMs, default
   * 300,000). Training in the same process can delay their reading by seconds, so they are as generous as Node's own.
   */
  headersMs?: number;
  requestMs?: number;
  /** Milliseconds that unfinished answers get when the server closes. */
  closeMs?: number;
}

export interface Listening {
  /** Address of the server, as http://host:port. */
  url: string;
  /** Waits for unfinished answers, then closes all connections. Resolves when all are closed. */
  close(): Promise<void>;
}

/** Maximum size of a request's body. A conversation that fills the longest context has a few hundred kilobytes. */
const MAX_BODY_BYTES = 4 * 2 ** 20;
const MAX_DEPTH = 64;
/**
 * Maximum number of kinds of refused requests that are logged. A client could otherwise fill the log, because it can name any parameter.
 */
const MAX_KINDS = 64;
const LOOPBACK = ['localhost', '127.0.0.1', '::1'];

const isLoopback = (host: string): boolean => LOOPBACK.includes(host);

/** Throws InputError if the server has no token although other machines could reach it. */
export function checkReach(host: string, token: string | undefined): void {
  if (isLoopback(host) || token) return;
  throw new InputError(
    `--host ${host} admits other machines, which needs --token TEXT (or WEBGRPO_TOKEN). Leave --host out to serve this machine alone.`,
  );
}

/** Starts the server. Throws InputError if it has no token although other machines could reach it, or if the port is taken. */
export async function listen(routes: Routes, options: ListenOptions): Promise<Listening> {
  const { host, port, token, headersMs = 60_000, requestMs = 300_000, closeMs = 5000 } = options;
  checkReach(host, token);
  const server = createServer({
    headersTimeout: headersMs,
    requestTimeout: requestMs,
    connectionsCheckingInterval: Math.min(1000, headersMs),
    maxHeaderSize: 16_384,
    keepAliveTimeout: 5000,
  });
  const answering = new Set<ServerResponse>();
  const refusals = new Refusals();
  let isClosing = false;
  for (const event of ['request', 'checkContinue', 'checkExpectation'])
    server.on(event, (request: IncomingMessage, response: ServerResponse) => {
      answering.add(response);
      response.on('close', () => answering.delete(response));
      if (isClosing) response.shouldKeepAlive = false;
      void answer(routes, options, refusals, request, response);
    });
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy();
    const late = error.code === 'ERR_HTTP_REQUEST_TIMEOUT';
    const words = late
      ? 'The request took too long to arrive. Send it without pauses.'
      : 'The request is not valid HTTP.';
    const { status, body } = new ApiError(words, { status: late ? 408 : 400 });
    const text = JSON.stringify(body);
    const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close\r\nContent-Type: application/json`;
    socket.end(`${head}\r\nContent-Length: ${text.length}\r\n\r\n${text}`);
  });
  server.listen(port, host);
  await once(server, 'listening').catch((error: NodeJS.ErrnoException) => {
    const why = error.code ?? error.message;
    throw new InputError(`Cannot listen on ${host}:${port} (${why}). Choose another --port or --host.`);
  });
  const { port: taken } = server.address() as AddressInfo;
  const close = async () => {
    const closed = once(server, 'close');
    isClosing = true;
    for (const response of answering) response.shouldKeepAlive = false;
    server.close();
    const late = setTimeout(() => server.closeAllConnections(), closeMs);
    await Promise.all([...answering].map((response) => once(response, 'close')));
    clearTimeout(late);
    server.closeAllConnections();
    await closed;
  };
  return { url: `http://${host.includes(':') ? `[${host}]` : host}:${taken}`, close };
}

async function answer(
  routes: Routes,
  options: ListenOptions,
  refusals: Refusals,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const gone = new AbortController();
  response.on('close', () => response.writableFinished || gone.abort());
  response.on('error', () => {}); // a 'close' event follows
  response.setHeader('X-Content-Type-Options', 'nosniff');
  response.setHeader('Cache-Control', 'no-store');
  try {
    const parts = pathOf(request);
    checkCaller(request, response, options);
    const method = request.method ?? 'GET';
    if (method === 'OPTIONS' && request.headers.origin !== undefined) return void response.writeHead(204).end();
    if (parts.join('/') !== 'health') checkToken(request, options.token);
    const path = JSON.stringify(request.url?.slice(0, 100));
    const actions = routes(parts);
    if (!actions)
      throw new ApiError(
        `There is nothing at ${path}. Send chats to /v1/chat/completions, /v1/responses or /v1/messages.`,
        { status: 404 },
      );
    const action = actions[method === 'HEAD' ? 'GET' : method];
    if (!action) {
      const methods = Object.keys(actions).join(', ');
      response.setHeader('Allow', methods);
      throw new ApiError(`${path} takes ${methods}, not ${method}.`, { status: 405 });
    }
    const json = () => readJson(request, response);
    const { 'content-length': length = '0', 'transfer-encoding': coding } = request.headers;
    const isEmpty = length === '0' && coding === undefined;
    const result = await action({ isEmpty, json, signal: gone.signal, client: clientOf(request) });
    if ('body' in result) send(request, response, 200, result.body);
    else await sendEvents(request, response, result, gone.signal);
  } catch (error) {
    if (gone.signal.aborted || response.headersSent) return void response.destroy();
    refusals.log(error);
    const failed = failure(error);
    send(request, response, failed.status, bodyOf(request, failed));
  }
}

const LOST = new ApiError(
  'The GPU device was lost during this call, so its tokens are dropped. Make the call again: it waits for a new device.',
  { status: 503, code: 'device_lost' },
);

/** Logs refused requests: only the first of each kind (status and error code). */
class Refusals {
  readonly #kinds = new Set<string>();

  log(error: unknown): void {
    if (!(error instanceof InputError)) return; // `failure` logs other errors
    const { status = 400, code = null, param = null } = error instanceof ApiError ? error : {};
    const kind = `${status} ${code ?? param?.replaceAll(/\d+/g, '') ?? ''}`;
    if (this.#kinds.has(kind) || this.#kinds.size >= MAX_KINDS) return;
    this.#kinds.add(kind);
    say(`a request was refused with ${status}, the first of its kind: ${oneLine(error.message)}`);
  }
}

function failure(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof DeviceLostError) return LOST;
  if (error instanceof InputError) return new ApiError(error.message);
  say(`a request failed: ${describe(error)}`);
  return new ApiError(`The run failed at this request: ${describe(error)}`, { status: 500 });
}

/** Returns the JSON body of an error, in the form of the API that the request used: Anthropic's or OpenAI's. */
function bodyOf({ url = '', headers }: IncomingMessage, error: ApiError): object {
  const isAnthropic = headers['anthropic-version'] !== undefined || /\/messages(\?|$)/.test(url);
  return isAnthropic ? anthropicError(error) : error.body;
}

function send(request: IncomingMessage, response: ServerResponse, status: number, body: unknown): void {
  const text = JSON.stringify(body, (_, value: unknown) => (Number.isNaN(value) ? null : value));
  if (status === 401) response.setHeader('WWW-Authenticate', 'Bearer');
  if (status === 429 || status === 503) response.setHeader('Retry-After', '1');
  const isRead = request.complete || Number(request.headers['content-length'] ?? 0) === 0;
  if (!isRead) response.setHeader('Connection', 'close'); // the rest of the body is not read
  response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) });
  response.end(request.method === 'HEAD' ? undefined : text);
}

async function sendEvents(
  request: IncomingMessage,
  response: ServerResponse,
  answer: Exclude<HttpAnswer, { body: unknown }>,
  gone: AbortSignal,
): Promise<void> {
  response.writeHead(200, { 'Content-Type': 'text/event-stream', Connection: 'keep-alive' });
  let sent = 0;
  const write = async (data: string, name?: string) => {
    sent++;
    const event = `${name === undefined ? '' : `event: ${name}\n`}data: ${data}\n\n`;
    if (response.destroyed || response.write(event)) return;
    await once(response, 'drain', { signal: gone }).catch(() => undefined);
  };
  try {
    if ('named' in answer) for await (const event of answer.named) await write(JSON.stringify(event), event.type);
    else {
      for await (const event of answer.events) await write(JSON.stringify(event));
      await write('[DONE]');
    }
  } catch (error) {
    if (response.destroyed) return;
    const failed = failure(error); // the status was already sent
    const body = bodyOf(request, failed);
    if ('named' in answer) await write(JSON.stringify(errorEvent(body, failed, sent)), 'error');
    else await write(JSON.stringify(body));
  }
  response.end();
}

/**
 * Returns an error as a server-sent event. OpenAI documents the fields on the event itself, but its client libraries read them from
 * `error`.
 */
function errorEvent(body: object, { message, code, param }: ApiError, sent: number): object {
  return 'type' in body ? body : { type: 'error', sequence_number: sent, code, message, param, ...body };
}

/** Returns the decoded parts of a path. Throws ApiError for an invalid path. */
function pathOf({ url = '/' }: IncomingMessage): string[] {
  const [path] = url.split('?');
  try {
    if (path.startsWith('/') && path.length <= 512) return path.slice(1).split('/').map(decodeURIComponent);
  } catch {
    // decodeURIComponent failed. The error is thrown below.
  }
  throw new ApiError('The path cannot be read.', { status: 400 });
}

/**
 * Throws ApiError for a request that a foreign web page makes the user's browser send: by a host name of the page that resolves to this
 * machine (DNS rebinding), or by the name or address of this machine.
 */
function checkCaller(
  { headers }: IncomingMessage,
  response: ServerResponse,
  { host, allowOrigins = [] }: ListenOptions,
): void {
  const forbidden = (words: string) => new ApiError(words, { status: 403 });
  const { origin, host: asked = '' } = headers;
  const name = /^(\[[^\]]*\]|[^:]*)(:\d+)?$/.exec(asked)?.[1].replace(/^\[|\]$/g, '') ?? '';
  if (isLoopback(host) && !isLoopback(name))
    throw forbidden(`The request is for the host ${JSON.stringify(asked)}, but this server serves its own machine.`);
  const isAllowed = origin !== undefined && allowOrigins.includes(origin);
  if (!isAllowed && (origin !== undefined || headers['sec-fetch-site'] === 'cross-site'))
    throw forbidden(
      `The page at ${JSON.stringify(origin ?? 'another site')} is not allowed to send requests. Start the server with --allow-origin for it.`,
    );
  if (!isAllowed) return;
  response.setHeader('Access-Control-Allow-Origin', origin);
  response.setHeader('Vary', 'Origin, Access-Control-Request-Headers');
  response.setHeader('Access-Control-Allow-Methods', 'GET, POST, DELETE');
  const asks = headers['access-control-request-headers'] ?? '';
  const isPlain = /^[\w-]+(, *[\w-]+)*$/.test(asks);
  response.setHeader('Access-Control-Allow-Headers', isPlain ? asks : 'authorization, content-type');
  response.setHeader('Access-Control-Expose-Headers', 'retry-after, www-authenticate');
}

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();

/** Returns the API key of a request. */
function keyOf({ headers }: IncomingMessage): string | undefined {
  const key = headers['x-api-key']; // Anthropic's clients
  return /^Bearer (.+)$/i.exec(headers.authorization ?? '')?.[1] ?? (typeof key === 'string' ? key : undefined);
}

/**
 * Returns a hash of the request's X-Client-Id header or, without it, of its API key. A hash, because checkpoints contain the value and must
 * not contain the key.
 */
function clientOf(request: IncomingMessage): string | undefined {
  const name = request.headers['x-client-id'];
  const given = typeof name === 'string' && name !== '' ? `id ${name}` : keyOf(request) && `key ${keyOf(request)}`;
  return given && digest(given).toString('hex').slice(0, 16);
}

/** Throws ApiError if the request's token is wrong. The comparison takes the same time for every token. */
function checkToken(request: IncomingMessage, token: string | undefined): void {
  if (token === undefined) return;
  const given = keyOf(request);
  if (given !== undefined && timingSafeEqual(digest(given), digest(token))) return;
  const what = given === undefined ? 'The request has no token' : 'The token is wrong';
  throw new ApiError(
    `${what}. Send "Authorization: Bearer" (or "x-api-key") with the token that the server was started with.`,
    {
      status: 401,
      code: 'invalid_api_key',
    },
  );
}

async function readJson(request: IncomingMessage, response: ServerResponse): Promise<unknown> {
  const { headers } = request;
  if (!/^application\/json\b/i.test(headers['content-type'] ?? ''))
    throw new ApiError('The body must be JSON, with "Content-Type: application/json".', { status: 415 });
  const { 'content-encoding': encoding = 'identity' } = headers;
  if (encoding !== 'identity')
    throw new ApiError(`The body is encoded as ${JSON.stringify(encoding.slice(0, 40))}. Send it as plain JSON.`, {
      status: 415,
    });
  const tooLarge = () =>
    new ApiError(`The body is larger than ${MAX_BODY_BYTES} bytes, which no context holds.`, { status: 413 });
  if (Number(headers['content-length'] ?? 0) > MAX_BODY_BYTES) throw tooLarge();
  if (headers.expect !== undefined) response.writeContinue();
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > MAX_BODY_BYTES) throw tooLarge();
    chunks.push(chunk);
  }
  const body = Buffer.concat(chunks);
  if (!isUtf8(body)) throw new ApiError('The body is not UTF-8.');
  const text = new TextDecoder().decode(body);
  if (jsonDepth(text) > MAX_DEPTH) throw new ApiError(`The body is nested more than ${MAX_DEPTH} deep.`);
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw new ApiError(`The body is not JSON: ${describe(error).slice(0, 120)}.`);
  }
}
