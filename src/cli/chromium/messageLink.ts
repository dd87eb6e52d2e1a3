/**
 * Carries the messages between a worker in a page and Node over a connection that transports only bytes. Each side has one MessageLink. A
 * MessagePort inside a message (comlink sends callbacks so) is replaced by a number, and messages of that port are carried over the same
 * link.
 */

import { concat } from '../../concat.ts';

/** A received message, and the objects in it that `postMessage` can transfer instead of copy. */
interface Received {
  message: unknown;
  transfer: Transferable[];
}

interface LinkOptions {
  /** Sends bytes to the other side. Order must be preserved. */
  send(bytes: Uint8Array<ArrayBuffer>): void;
  /** Called with each message that arrives: in the page for the worker, in Node from the worker. */
  receive(received: Received): void;
  /**
   * Number of the first port that this side sends; each later port adds 2. One side starts at 1, the other at 2, so no number is used
   * twice.
   */
  firstPort: 1 | 2;
}

/** Channel number of messages that the worker itself sends or receives. Other channels are ports. */
const WORKER = 0;

/** One end of the link: converts messages to bytes and back, and carries the ports inside them. */
export class MessageLink {
  readonly #options: LinkOptions;
  readonly #ports = new Map<number, MessagePort>();
  #nextPort: number;

  constructor(options: LinkOptions) {
    this.#options = options;
    this.#nextPort = options.firstPort;
  }

  /** Sends a message. Throws TypeError if the message contains a value that cannot be converted to bytes. */
  post(message: unknown): void {
    this.#send(WORKER, message);
  }

  /** Handles bytes that the other side has sent. */
  deliver(bytes: Uint8Array): void {
    const { message, transfer } = decode(bytes, (port) => this.#accept(port));
    const [channel, content] = message as [number, unknown];
    if (channel === WORKER) this.#options.receive({ message: content, transfer });
    else this.#ports.get(channel)?.postMessage(content, transfer);
  }

  /** Closes all ports. */
  close(): void {
    for (const port of this.#ports.values()) port.close();
    this.#ports.clear();
  }

  #send(channel: number, message: unknown): void {
    this.#options.send(encode([channel, message], (port) => this.#offer(port)));
  }

  /** Registers a port that is inside a message to the other side, and returns its number. The port's messages are carried from now on. */
  #offer(port: MessagePort): number {
    const id = this.#nextPort;
    this.#nextPort += 2;
    this.#listen(id, port);
    return id;
  }

  /** Returns a new local port that stands for the port with this number on the other side. */
  #accept(id: number): MessagePort {
    const { port1, port2 } = new MessageChannel();
    this.#listen(id, port1);
    return port2;
  }

  #listen(id: number, port: MessagePort): void {
    this.#ports.set(id, port);
    port.addEventListener('message', ({ data }: MessageEvent<unknown>) => {
      this.#send(id, data);
      if (isRelease(data)) this.#ports.delete(id);
    });
    port.start();
    // `unref`, because an open port would keep a Node process alive.
    (port as MessagePort & { unref?(): void }).unref?.();
  }
}

/** True for the message by which comlink releases a port. It is the last message on that port. */
const isRelease = (data: unknown): boolean => (data as { type?: unknown } | null)?.type === 'RELEASE';

const TYPED_ARRAYS = {
  ...{ Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array },
  ...{ Float32Array, Float64Array, BigInt64Array, BigUint64Array },
};
type TypedArrayName = keyof typeof TYPED_ARRAYS;

/** Only key of the object as which a value that JSON does not have (see Kinded) is written. The value of the key is [kind, content]. */
const KIND = '$kind';
type Kinded =
  | ['map', [unknown, unknown][]]
  | ['set', unknown[]]
  | ['number', string]
  | ['undefined', 0]
  | ['port', number]
  | ['bytes', 'ArrayBuffer' | TypedArrayName, number];

/** Returns a message as bytes: the length of its JSON, the JSON, then the bytes of its ArrayBuffers and typed arrays. */
export function encode(message: unknown, offer: (port: MessagePort) => number): Uint8Array<ArrayBuffer> {
  const arrays: Uint8Array[] = [];
  const kinded = (...kind: Kinded) => ({ [KIND]: kind });
  const bytes = (name: 'ArrayBuffer' | TypedArrayName, array: Uint8Array) => {
    arrays.push(array);
    return kinded('bytes', name, array.length);
  };
  const plain = (value: unknown): unknown => {
    if (typeof value === 'number')
      return Number.isFinite(value) && !Object.is(value, -0)
        ? value
        : kinded('number', Object.is(value, -0) ? '-0' : `${value}`);
    if (value === undefined) return kinded('undefined', 0);
    if (value === null || typeof value === 'string' || typeof value === 'boolean') return value;
    if (Array.isArray(value)) return value.map(plain);
    if (value instanceof Map)
      return kinded(
        'map',
        [...value].map(([key, of]): [unknown, unknown] => [plain(key), plain(of)]),
      );
    if (value instanceof Set) return kinded('set', [...value].map(plain));
    if (value instanceof MessagePort) return kinded('port', offer(value));
    if (value instanceof ArrayBuffer) return bytes('ArrayBuffer', new Uint8Array(value));
    const name = Object.prototype.toString.call(value).slice(8, -1);
    if (ArrayBuffer.isView(value) && Object.hasOwn(TYPED_ARRAYS, name))
      return bytes(name as TypedArrayName, new Uint8Array(value.buffer, value.byteOffset, value.byteLength));
    if (typeof value === 'object' && name === 'Object')
      return Object.fromEntries(Object.entries(value).map(([key, of]) => [key, plain(of)]));
    throw new TypeError(`A message between page and Node contains a ${name}, which cannot be sent.`);
  };
  const json = new TextEncoder().encode(JSON.stringify(plain(message)));
  const parts = [new Uint8Array(Uint32Array.of(json.length).buffer), json, ...arrays];
  return concat(Uint8Array, parts);
}

/** Reads the bytes that `encode` returned. Each typed array in the message gets its own buffer. */
export function decode(bytes: Uint8Array, accept: (port: number) => MessagePort): Received {
  const transfer: Transferable[] = [];
  const jsonLength = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  let at = 4 + jsonLength;
  const take = (name: 'ArrayBuffer' | TypedArrayName, length: number) => {
    const array = new Uint8Array(length);
    array.set(bytes.subarray(at, (at += length))); // a Buffer's own slice() would share the memory
    const { buffer } = array;
    transfer.push(buffer);
    return name === 'ArrayBuffer' ? buffer : new TYPED_ARRAYS[name](buffer);
  };
  const valueOf = ([kind, content, length]: Kinded) => {
    if (kind === 'map') return new Map(content.map(([key, of]) => [full(key), full(of)]));
    if (kind === 'set') return new Set(content.map(full));
    if (kind === 'number') return Number(content);
    if (kind === 'bytes') return take(content, length);
    if (kind === 'undefined') return undefined;
    const port = accept(content);
    transfer.push(port);
    return port;
  };
  // Must visit values in the same order as `encode`: the offset of an array is the sum of the sizes of all earlier arrays.
  const full = (value: unknown): unknown => {
    if (typeof value !== 'object' || value === null) return value;
    if (Array.isArray(value)) return value.map(full);
    if (Object.hasOwn(value, KIND)) return valueOf((value as { [KIND]: Kinded })[KIND]);
    return Object.fromEntries(Object.entries(value).map(([key, of]) => [key, full(of)]));
  };
  const json = new TextDecoder().decode(bytes.subarray(4, 4 + jsonLength));
  return { message: full(JSON.parse(json)), transfer };
}
