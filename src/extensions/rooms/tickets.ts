/**
 * Proofs that a sample contains. A ticket is sent with a group and proves that the group was handed out. It is derived from group and
 * secret, so a resumed controller can check it. A signature proves which worker sent the sample, because all workers share one user of the
 * server.
 */

import { MessageError } from './frame.ts';

/** Creates and checks the tickets of groups. */
export class Tickets {
  readonly #key: CryptoKey;

  private constructor(key: CryptoKey) {
    this.#key = key;
  }

  static async of(secret: Uint8Array<ArrayBuffer>): Promise<Tickets> {
    return new Tickets(
      await crypto.subtle.importKey('raw', secret, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign', 'verify']),
    );
  }

  /** Returns a new ticket for a group. The server treats samples with different tickets as different, so a group can be generated again. */
  async give(uid: string): Promise<string> {
    const nonce = hex(crypto.getRandomValues(new Uint8Array(8)));
    return `${nonce}.${hex(new Uint8Array(await crypto.subtle.sign('HMAC', this.#key, signed(nonce, uid))))}`;
  }

  async isOf(uid: string, ticket: string): Promise<boolean> {
    const [nonce, sum = ''] = ticket.split('.');
    const bytes = Uint8Array.from(sum.match(/../g) ?? [], (digits) => parseInt(digits, 16));
    return crypto.subtle.verify('HMAC', this.#key, bytes, signed(nonce, uid));
  }
}

const SIGNATURE_BYTES = 64;

/** Appends a signature by the worker's secret key. */
export async function withSignature(data: Uint8Array, seed: string): Promise<Uint8Array> {
  const { nkeys } = await import('@nats-io/nats-core');
  const signature = nkeys.fromSeed(new TextEncoder().encode(seed)).sign(await sha256(data));
  const bytes = new Uint8Array(data.length + SIGNATURE_BYTES);
  bytes.set(data);
  bytes.set(signature, data.length);
  return bytes;
}

/** Returns the signed data. Throws MessageError if the signature is not the worker's, whose public key is its name. */
export async function signedBy(worker: string, bytes: Uint8Array): Promise<Uint8Array> {
  const { nkeys } = await import('@nats-io/nats-core');
  const [data, signature] = [bytes.subarray(0, -SIGNATURE_BYTES), bytes.subarray(-SIGNATURE_BYTES)];
  const hash = await sha256(data);
  try {
    if (nkeys.fromPublic(worker).verify(hash, signature)) return data;
  } catch {
    // The name is not a key, or the message is shorter than a signature.
  }
  throw new MessageError('signature', `A sample is not signed by the worker "${worker}".`);
}

const sha256 = async (data: Uint8Array) =>
  new Uint8Array(await crypto.subtle.digest('SHA-256', data as Uint8Array<ArrayBuffer>));
const signed = (nonce: string, uid: string) => new TextEncoder().encode(`${nonce} ${uid}`);
const hex = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
