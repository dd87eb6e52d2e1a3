/** A local server that behaves like a Hugging Face hub, except for lies that the campaign requests, and records where a token is sent. */

import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';

/** One lie: about the list of files, or about the bytes of a file. `how` is an index into the lies about that item. */
export interface Lie {
  about: 'listing' | 'config.json' | 'tokenizer.json' | 'model.safetensors';
  how: number;
}

const SHA = '0123456789abcdef0123456789abcdef01234567';
const FOLDER = 'test/fixtures/tiny-qwen2';
const hash = (kind: string, ...parts: (string | Uint8Array)[]) =>
  parts.reduce((all, part) => all.update(part), createHash(kind)).digest('hex');

interface Sibling {
  rfilename: string;
  size?: unknown;
  blobId?: unknown;
  lfs?: unknown;
}
interface Listing {
  sha: unknown;
  siblings: unknown;
}

type ChangeSibling = (sibling: Sibling) => Partial<Sibling> & object;
const all = (change: ChangeSibling) => (listing: Listing) => ({
  ...listing,
  siblings: (listing.siblings as Sibling[]).map((sibling) => ({ ...sibling, ...change(sibling) })),
});
const beside =
  (...names: string[]) =>
  (listing: Listing) => ({
    ...listing,
    siblings: [...(listing.siblings as Sibling[]), ...names.map((rfilename) => ({ rfilename, size: 1 }))],
  });

/** Lies about the list of files: responses that replace it. */
export const LISTINGS: ((listing: Listing) => unknown)[] = [
  ...[
    null,
    [],
    7,
    'x',
    {},
    '<html></html>',
    { sha: SHA },
    { sha: SHA, siblings: [null] },
    { sha: SHA, siblings: {} },
  ].map((value) => () => value),
  ...['../../x', '/tmp/x', 'C:\\x', 'a\\b', '', null, 7, 'x\u0000', 'CON'].map((sha) => (listing: Listing) => ({
    ...listing,
    sha,
  })),
  beside('../pwned', '/tmp/x/pwned', '..\\pwned', 'C:\\pwned', 'a\u0000b', '', '\ud800', 'NUL', 'x'.repeat(10_000)),
  (listing) => beside(...Array.from({ length: 100_000 }, (_, i) => `file-${i}`))(listing),
  all(() => ({ size: 1e15, lfs: undefined })),
  all(({ size }) => ({ size: (size as number) - 1, lfs: undefined })),
  all(() => ({ size: -1 })),
  all(() => ({ size: 'x' })),
  all(() => ({ lfs: { sha256: '0'.repeat(64), size: 3 } })),
  all(() => ({ lfs: 7 })),
  all(() => ({ blobId: '0'.repeat(40), lfs: undefined })),
  all(() => ({ rfilename: 'other' })),
  () => ({ sha: SHA, siblings: [] }),
];

interface Asked {
  request: IncomingMessage;
  response: ServerResponse;
  bytes: Uint8Array;
  other: string;
}

const send = ({ response }: Asked, bytes: Uint8Array, headers: Record<string, string | number> = {}, status = 200) =>
  void response
    .writeHead(status, { etag: `"${hash('md5', bytes)}"`, 'content-length': bytes.length, ...headers })
    .end(bytes);

const flipped = (bytes: Uint8Array) => bytes.map((byte, i) => (i === bytes.length - 1 ? byte ^ 1 : byte));

/** Writes `bytes` bytes every `ms` milliseconds until the client disconnects. */
function drip({ response }: Asked, bytes: number, ms: number): void {
  response.writeHead(200, { etag: '"endless"' });
  const timer = setInterval(() => response.write(new Uint8Array(bytes)), ms);
  response.on('close', () => clearInterval(timer));
}

/** Lies about a file: responses that replace it. At the second request, most lies send the real file. */
export const BODIES: ((asked: Asked) => void)[] = [
  (asked) => send(asked, flipped(asked.bytes)),
  (asked) => send(asked, asked.bytes.subarray(0, asked.bytes.length >> 1)),
  (asked) => send(asked, Uint8Array.of(...asked.bytes, 1, 2, 3)),
  (asked) => send(asked, new TextEncoder().encode('<!doctype html><html></html>'), { 'content-type': 'text/html' }),
  (asked) => send(asked, new Uint8Array(0)),
  (asked) => send(asked, gzipSync(asked.bytes), { 'content-encoding': 'gzip' }),
  (asked) => send(asked, asked.bytes, { 'content-encoding': 'gzip' }),
  (asked) => send(asked, gzipSync(new Uint8Array(2 ** 26)), { 'content-encoding': 'gzip' }),
  ...[301, 302, 307].map(
    (status) =>
      ({ request, response }: Asked) =>
        void response.writeHead(status, { location: request.url }).end(),
  ),
  ({ response }) => void response.writeHead(302, { location: 'http://[::1' }).end(),
  ({ response }) => void response.writeHead(302, { location: 'file:///etc/passwd' }).end(),
  ({ response }) => void response.writeHead(302).end(),
  ({ request, response, other }) => void response.writeHead(302, { location: `${other}${request.url}` }).end(),
  ...[204, 206, 304, 400, 401, 403, 404, 408, 410, 416, 418, 429, 500, 503].map(
    (status) =>
      ({ response }: Asked) =>
        void response.writeHead(status).end(),
  ),
  (asked) => send(asked, asked.bytes.subarray(10), { 'content-range': `bytes 10-20/${asked.bytes.length}` }, 206),
  (asked) => send(asked, asked.bytes, { 'content-range': 'bytes x' }, 206),
  (asked) => send(asked, asked.bytes, { etag: '"another"' }),
  (asked) => send(asked, asked.bytes, { etag: 'W/"weak"' }),
  (asked) => {
    const { response, bytes } = asked;
    response.writeHead(200, { etag: `"${hash('md5', bytes)}"`, 'content-length': bytes.length });
    response.write(bytes.subarray(0, bytes.length >> 1), () => setTimeout(() => response.destroy(), 20));
  },
  ({ response }) => response.destroy(),
  () => undefined,
  ({ response, bytes }) => void response.writeHead(200, { 'content-length': bytes.length }).flushHeaders(),
  (asked) => drip(asked, 1, 20),
  (asked) => drip(asked, 2 ** 20, 1),
  ({ response }) => void response.writeHead(200, { 'transfer-encoding': 'chunked' }).flushHeaders(),
];

/** Number of times that a repeated lie is told. */
const KEPT = 8;

export class LyingHub {
  /** Hosts, or paths of this host, that received a token meant for another. */
  leaked: string[] = [];
  /** The first value of each tensor of the real model, in order, as text. */
  first = '';
  #lies: { lie: Lie; left: number }[] = [];
  #server: Server | undefined;
  #other: Server | undefined;
  readonly #files = new Map<string, Uint8Array>();

  static async start(read: (file: string) => Uint8Array): Promise<LyingHub> {
    const { readSafetensors } = await import('../../src/model/checkpoint/safetensors.ts');
    const hub = new LyingHub();
    for (const name of ['config.json', 'model.safetensors'])
      hub.#files.set(name, new Uint8Array(read(`${FOLDER}/${name}`)));
    for (const name of ['tokenizer.json', 'tokenizer_config.json'])
      hub.#files.set(name, new Uint8Array(read(`checkpoints/gsm8k-tool/${name}`)));
    const tensors = readSafetensors(hub.#files.get('model.safetensors')!);
    const { parameterSpecs } = await import('../../src/model/params.ts');
    const { parseModelConfig } = await import('../../src/model/config.ts');
    const config = parseModelConfig(JSON.parse(new TextDecoder().decode(hub.#files.get('config.json'))));
    hub.first = JSON.stringify(parameterSpecs(config).map(({ name }) => [name, tensors.get(name)!.data[0]]));
    const listen = async (server: Server) => {
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
      return server;
    };
    hub.#server = await listen(createServer((request, response) => hub.#answer(request, response)));
    hub.#other = await listen(createServer((request, response) => hub.#elsewhere(request, response)));
    return hub;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server!.address() as AddressInfo).port}`;
  }

  begin(lies: readonly Lie[]): void {
    this.leaked = [];
    this.#lies = lies.map((lie) => ({ lie, left: lie.how % 2 === 0 ? KEPT : 1 }));
  }

  /**
   * True if weights from `address` must be those of the real model: the list of files, with its hashes, came from the repository without a
   * lie.
   */
  isChecked(address: string): boolean {
    return address === 'repository' && !this.#lies.some(({ lie }) => lie.about === 'listing');
  }

  close(): void {
    for (const server of [this.#server, this.#other]) {
      server?.close();
      server?.closeAllConnections();
    }
  }

  #elsewhere(request: IncomingMessage, response: ServerResponse): void {
    if (request.headers.authorization !== undefined) this.leaked.push('another host');
    this.#file(request, response, []);
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    if (request.url!.startsWith('/api/models/')) {
      const [told] = this.#told('listing');
      const listing = told ? LISTINGS[told.how](this.#listing()) : this.#listing();
      return void response.end(typeof listing === 'string' ? listing : JSON.stringify(listing));
    }
    this.#file(request, response, this.#told(request.url!.slice(request.url!.lastIndexOf('/') + 1)));
  }

  #file(request: IncomingMessage, response: ServerResponse, [lie]: Lie[]): void {
    const bytes = this.#files.get(request.url!.slice(request.url!.lastIndexOf('/') + 1));
    if (!bytes) return void response.writeHead(404).end();
    const other = `http://127.0.0.1:${(this.#other!.address() as AddressInfo).port}`;
    if (lie) return BODIES[lie.how]({ request, response, bytes, other });
    const etag = `"${hash('md5', bytes)}"`;
    if (request.headers['if-none-match'] === etag) return void response.writeHead(304).end();
    const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? -1);
    if (from < 0) return send({ request, response, bytes, other }, bytes);
    if (from >= bytes.length) return void response.writeHead(416).end();
    const range = `bytes ${from}-${bytes.length - 1}/${bytes.length}`;
    response.writeHead(206, { etag, 'content-range': range }).end(bytes.subarray(from));
  }

  /** Returns the lie about an item; the same lie again if it is a repeated one. */
  #told(about: string): Lie[] {
    const found = this.#lies.find(({ lie, left }) => lie.about === about && left > 0);
    if (!found) return [];
    found.left--;
    return [found.lie];
  }

  #listing(): Listing {
    const siblings = [...this.#files].map(([rfilename, bytes]) =>
      rfilename.endsWith('.safetensors')
        ? { rfilename, size: bytes.length, lfs: { size: bytes.length, sha256: hash('sha256', bytes) } }
        : { rfilename, size: bytes.length, blobId: hash('sha1', `blob ${bytes.length}\0`, bytes) },
    );
    return { sha: SHA, siblings };
  }
}
