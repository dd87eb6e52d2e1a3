/**
 * An HTTP server for JSON: what may ask (token, origin, host), how much and for how long (bytes of a body, seconds of a
 * request), and what goes back (one JSON object, or server-sent events). What the paths mean is routes.ts's.
 */

import { createHash, timingSafeEqual } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, DeviceLostError, InputError } from '../../errors.ts';
import { ApiError } from '../../extensions/client/index.ts';
import { jsonDepth } from '../../tasks/tools/plain.ts';
import { say } from '../run/progress.ts';

export interface HttpRequest {
  method: string;
  /** Parts of the path, decoded. */
  parts: string[];
  /** Reads and parses the body. */
  json(): Promise<unknown>;
  /** Aborts when the client is gone before its answer was. */
  signal: AbortSignal;
}

/** `events` are sent one by one as server-sent events. */
export type HttpAnswer = { status?: number; body: unknown } | { events: AsyncIterable<unknown> };

/** Undefined: there is no such path. A list of methods: the path has these alone. */
export type Handler = (request: HttpRequest) => Promise<HttpAnswer | string[] | undefined>;

export interface ListenOptions {
  host: string;
  /** 0 = any that is free. */
  port: number;
  token?: string | undefined;
  /** Origins of pages that may ask. */
  allowOrigins?: readonly string[];
  maxBodyBytes?: number;
  /** Milliseconds for a request's head, and for all of it. */
  headersMs?: number;
  requestMs?: number;
}

export interface Listening {
  /** http://host:port */
  url: string;
  /** Resolves once every connection is closed. */
  close(): Promise<void>;
}

/** A conversation of the longest context is some hundred kilobytes. */
const MAX_BODY_BYTES = 4 * 2 ** 20;
const MAX_DEPTH = 64;
const LOOPBACK = ['localhost', '127.0.0.1', '::1'];

const isLoopback = (host: string): boolean => LOOPBACK.includes(host);

/** Throws InputError for a host that others reach without a token. */
export function checkReach(host: string, token: string | undefined): void {
  if (isLoopback(host) || token) return;
  throw new InputError(
    `--host ${host} lets other machines in, which needs --token TEXT (or WEBGRPO_TOKEN); leave --host out to serve this machine alone.`,
  );
}

/** Throws InputError for a host that others reach without a token, and for a port that is taken. */
export async function listen(handler: Handler, options: ListenOptions): Promise<Listening> {
  const { host, port, token, headersMs = 10_000, requestMs = 60_000 } = options;
  checkReach(host, token);
  const server = createServer({
    headersTimeout: headersMs,
    requestTimeout: requestMs,
    connectionsCheckingInterval: Math.min(1000, headersMs),
    maxHeaderSize: 16_384,
    keepAliveTimeout: 5000,
  });
  const serve = (request: IncomingMessage, response: ServerResponse) =>
    void answer(handler, options, request, response);
  server.on('request', serve);
  server.on('checkContinue', serve);
  server.on('checkExpectation', serve);
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy();
    const late = error.code === 'ERR_HTTP_REQUEST_TIMEOUT';
    const [status, words] = late
      ? ['408 Request Timeout', 'The request took too long to arrive; send it at once.']
      : ['400 Bad Request', 'This is no HTTP request that can be read.'];
    const body = JSON.stringify(new ApiError(words, { status: late ? 408 : 400 }).body);
    socket.end(
      `HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) =>
      reject(
        new InputError(
          `Cannot listen on ${host}:${port} (${error.code ?? error.message}); choose another --port or --host.`,
        ),
      ),
    );
    server.listen(port, host, resolve);
  });
  const { port: taken } = server.address() as AddressInfo;
  return { url: `http://${host.includes(':') ? `[${host}]` : host}:${taken}`, close: () => close(server) };
}

function close(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}

async function answer(
  handler: Handler,
  options: ListenOptions,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const gone = new AbortController();
  response.on('close', () => response.writableFinished || gone.abort());
  response.on('error', () => {}); // 'close' follows
  response.setHeader('X-Content-Type-Options', 'nosniff');
  response.setHeader('Cache-Control', 'no-store');
  try {
    const parts = pathOf(request);
    checkCaller(request, response, options);
    const method = request.method ?? 'GET';
    if (method === 'OPTIONS' && request.headers.origin !== undefined) return void response.writeHead(204).end();
    if (parts.join('/') !== 'health') checkToken(request, options.token);
    const asked = method === 'HEAD' ? 'GET' : method;
    const json = () => readJson(request, response, options.maxBodyBytes ?? MAX_BODY_BYTES);
    const result = await handler({ method: asked, parts, json, signal: gone.signal });
    if (result === undefined) throw new ApiError(`There is nothing at ${shownPath(request)}.`, { status: 404 });
    if (Array.isArray(result)) {
      response.setHeader('Allow', result.join(', '));
      throw new ApiError(`${shownPath(request)} takes ${result.join(', ')}, not ${method}.`, { status: 405 });
    }
    if ('events' in result) await sendEvents(response, result.events);
    else send(request, response, result.status ?? 200, result.body);
  } catch (error) {
    if (gone.signal.aborted || response.headersSent) return void response.destroy();
    send(request, response, ...failure(error));
  }
}

const LOST = new ApiError(
  'The GPU device was lost in this call, and what it had computed is dropped. Make it again: it waits for a fresh device.',
  { status: 503, code: 'device_lost' },
);

function failure(error: unknown): [number, unknown] {
  if (error instanceof ApiError) return [error.status, error.body];
  if (error instanceof DeviceLostError) return [503, LOST.body];
  if (error instanceof InputError) return [400, new ApiError(error.message).body];
  say(`a request failed: ${describe(error)}`);
  return [500, new ApiError(`The run failed at this request: ${describe(error)}`, { status: 500 }).body];
}

function send(request: IncomingMessage, response: ServerResponse, status: number, body: unknown): void {
  const text = JSON.stringify(body, (_, value: unknown) => (Number.isNaN(value) ? null : value));
  if (status === 401) response.setHeader('WWW-Authenticate', 'Bearer');
  if (status === 429 || status === 503) response.setHeader('Retry-After', '1');
  const isRead = request.complete || Number(request.headers['content-length'] ?? 0) === 0;
  if (!isRead) response.setHeader('Connection', 'close'); // what is left of the body is not read
  response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) });
  response.end(request.method === 'HEAD' ? undefined : text);
}

async function sendEvents(response: ServerResponse, events: AsyncIterable<unknown>): Promise<void> {
  response.writeHead(200, { 'Content-Type': 'text/event-stream', Connection: 'keep-alive' });
  const write = async (data: string) => {
    if (response.destroyed || response.write(`data: ${data}\n\n`)) return;
    await new Promise<void>((resolve) => {
      const done = () => {
        response.off('drain', done);
        response.off('close', done);
        resolve();
      };
      response.on('drain', done);
      response.on('close', done);
    });
  };
  try {
    for await (const event of events) await write(JSON.stringify(event));
    await write('[DONE]');
  } catch (error) {
    if (response.destroyed) return;
    await write(JSON.stringify(failure(error)[1])); // the status has gone out already
  }
  response.end();
}

/** Throws ApiError for a path that cannot be one of ours. */
function pathOf({ url = '/' }: IncomingMessage): string[] {
  const [path] = url.split('?');
  try {
    if (path.startsWith('/') && path.length <= 512) return path.slice(1).split('/').map(decodeURIComponent);
  } catch {
    // Said below.
  }
  throw new ApiError('The path cannot be read.', { status: 400 });
}

const shownPath = ({ url = '' }: IncomingMessage): string => JSON.stringify(url.slice(0, 100));

/** A page of elsewhere may make a browser ask, by its own name for this machine (DNS rebinding) or by ours. Throws ApiError. */
function checkCaller(
  { headers }: IncomingMessage,
  response: ServerResponse,
  { host, allowOrigins = [] }: ListenOptions,
): void {
  const { origin } = headers;
  const name = /^(\[[^\]]*\]|[^:]*)(:\d+)?$/.exec(headers.host ?? '')?.[1].replace(/^\[|\]$/g, '');
  if (isLoopback(host) && !LOOPBACK.includes(name ?? ''))
    throw new ApiError(
      `The request is for the host ${JSON.stringify(headers.host ?? '')}, but this server serves its own machine.`,
      {
        status: 403,
      },
    );
  const isAllowed = origin !== undefined && allowOrigins.includes(origin);
  if ((origin !== undefined && !isAllowed) || (headers['sec-fetch-site'] === 'cross-site' && !isAllowed))
    throw new ApiError(
      `The page at ${JSON.stringify(origin ?? 'another site')} may not ask; start with --allow-origin for it.`,
      {
        status: 403,
      },
    );
  if (!isAllowed) return;
  response.setHeader('Access-Control-Allow-Origin', origin);
  response.setHeader('Vary', 'Origin');
  response.setHeader('Access-Control-Allow-Methods', 'GET, POST, DELETE');
  response.setHeader('Access-Control-Allow-Headers', 'authorization, content-type');
}

/** Compares in a time that tells nothing. Throws ApiError. */
function checkToken({ headers }: IncomingMessage, token: string | undefined): void {
  if (token === undefined) return;
  const digest = (text: string) => createHash('sha256').update(text).digest();
  const given = /^Bearer (.+)$/i.exec(headers.authorization ?? '')?.[1];
  if (given !== undefined && timingSafeEqual(digest(given), digest(token))) return;
  const what = given === undefined ? 'The request has no token' : 'The token is another';
  throw new ApiError(`${what}; send "Authorization: Bearer" with the one that the server was started with.`, {
    status: 401,
    code: 'invalid_api_key',
  });
}

async function readJson(request: IncomingMessage, response: ServerResponse, most: number): Promise<unknown> {
  const { headers } = request;
  if (!/^application\/json\b/i.test(headers['content-type'] ?? ''))
    throw new ApiError('The body must be JSON, with "Content-Type: application/json".', { status: 415 });
  const tooLarge = () =>
    new ApiError(`The body is larger than ${most} bytes, which no context holds.`, { status: 413 });
  if (Number(headers['content-length'] ?? 0) > most) throw tooLarge();
  if (headers.expect !== undefined) response.writeContinue();
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > most) throw tooLarge();
    chunks.push(chunk);
  }
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks));
  } catch {
    throw new ApiError('The body is no UTF-8.');
  }
  if (jsonDepth(text) > MAX_DEPTH) throw new ApiError(`The body is nested more than ${MAX_DEPTH} deep.`);
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw new ApiError(`The body is no JSON: ${describe(error).slice(0, 120)}.`);
  }
}
