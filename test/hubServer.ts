/** A local server that behaves like a Hugging Face hub, for Node and for pages, and misbehaves on request. */

import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Server } from 'node:net';

/** Returns the port on which a server listens. */
export function portOf(server: Pick<Server, 'address'>): number {
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('The server listens on no port.');
  return address.port;
}

/** Id of the only commit of the repository. */
export const SHA = '0123456789abcdef0123456789abcdef01234567';

/** Handles one request for a file's bytes in place of the server. Calling `send` sends the normal response. */
type Fault = (response: ServerResponse, send: () => void) => void;

/** A hub with the repository `org/tiny`, whose files are also served under `/files/`. */
export interface Hub {
  endpoint: string;
  files: Map<string, Uint8Array>;
  /** Requests that the server received, one per line, with their byte ranges. */
  log: string[];
  /** Faults by file, which the next requests for the file's bytes meet in this order. */
  faults: Map<string, Fault[]>;
  etagOf(file: string): string;
  /** Returns a fault that sends `bytes` bytes of the file, and closes the connection when `onProgress` says that they have arrived. */
  cutAfter(file: string, bytes: number): Fault;
  /** Must be passed as `onProgress` to the downloads of a test that uses `cutAfter`. */
  onProgress(progress: { received: number }): void;
  close(): void;
}

export const hash = (kind: string, ...parts: (string | Uint8Array)[]): string =>
  parts.reduce((h, part) => h.update(part), createHash(kind)).digest('hex');

export const answerWith =
  (code: number): Fault =>
  (response) =>
    void response.writeHead(code).end();

export async function startHub(files: Map<string, Uint8Array>): Promise<Hub> {
  const hub = { files, log: [], faults: new Map<string, Fault[]>() };
  let cut: ((received: number) => void) | undefined;
  const server = createServer((request, response) => answer(hub, request, response)).listen(0, '127.0.0.1');
  server.keepAliveTimeout = 60_000; // a busy machine must not lose connections between two requests
  await new Promise((resolve) => server.once('listening', resolve));
  return {
    ...hub,
    endpoint: `http://127.0.0.1:${portOf(server)}`,
    etagOf: (file) => etagOf(files.get(file)!),
    cutAfter: (file, bytes) => (response) => {
      const all = files.get(file)!;
      response.writeHead(200, { etag: etagOf(all), 'content-length': all.length });
      response.write(all.subarray(0, bytes));
      cut = (received) => void (received >= bytes && response.destroy());
    },
    onProgress: ({ received }) => cut?.(received),
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

const etags = new WeakMap<Uint8Array, string>();
/** Returns the ETag of a file. Large files are hashed once. */
function etagOf(bytes: Uint8Array): string {
  if (!etags.has(bytes)) etags.set(bytes, `"${hash('md5', bytes)}"`);
  return etags.get(bytes)!;
}

function answer(
  { files, log, faults }: Pick<Hub, 'files' | 'log' | 'faults'>,
  request: IncomingMessage,
  response: ServerResponse,
) {
  const url = request.url!;
  // The headers allow pages of other sites, as those of the real hub do.
  response.setHeader('access-control-allow-origin', '*');
  response.setHeader('access-control-expose-headers', 'ETag, Content-Range, Content-Length, Accept-Ranges');
  if (request.method === 'OPTIONS')
    return void response.writeHead(204, { 'access-control-allow-headers': 'if-none-match' }).end();
  log.push([url.replace(SHA, 'SHA'), request.headers.range].filter(Boolean).join(' '));
  if (url === '/api/models/org/tiny/revision/main?blobs=true') return void response.end(JSON.stringify(listing(files)));
  const file = url.slice(url.lastIndexOf('/') + 1);
  if (!files.has(file)) return void response.writeHead(404).end();
  // `resolve` redirects to the host that serves the bytes, as on the real hub.
  if (url.startsWith('/org/tiny/resolve/')) return void response.writeHead(302, { location: `/cdn/${file}` }).end();
  const fault = faults.get(file)?.shift();
  const send = () => sendFile(request, response, files.get(file)!);
  if (fault) fault(response, send);
  else send();
}

function sendFile({ headers }: IncomingMessage, response: ServerResponse, bytes: Uint8Array): void {
  const etag = etagOf(bytes);
  if (headers['if-none-match'] === etag) return void response.writeHead(304).end();
  const [, from, last = bytes.length - 1] = /^bytes=(\d+)-(\d+)?$/.exec(headers.range ?? '') ?? [];
  if (from === undefined) return void response.writeHead(200, { etag, 'content-length': bytes.length }).end(bytes);
  if (Number(from) >= bytes.length) return void response.writeHead(416).end();
  const rest = bytes.subarray(Number(from), Number(last) + 1);
  const range = `bytes ${from}-${Number(from) + rest.length - 1}/${bytes.length}`;
  response.writeHead(206, { etag, 'content-length': rest.length, 'content-range': range }).end(rest);
}

/** Files in the repository's list that the loader must not request. */
const NOT_ASKED_FOR = ['loss.png', 'onnx/config.json', 'pytorch_model.bin'].map((rfilename) => ({
  rfilename,
  size: 9,
  blobId: 'x',
}));

function listing(files: Map<string, Uint8Array>) {
  const siblings = [...files].map(([rfilename, bytes]) => {
    if (/\.(safetensors|gguf)$/.test(rfilename))
      return { rfilename, size: bytes.length, lfs: { size: bytes.length, sha256: hash('sha256', bytes) } };
    return { rfilename, size: bytes.length, blobId: hash('sha1', `blob ${bytes.length}\0`, bytes) };
  });
  return { sha: SHA, siblings: [...siblings, ...NOT_ASKED_FOR] };
}
