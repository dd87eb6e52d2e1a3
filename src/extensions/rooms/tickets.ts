/**
 * Proofs that messages of a room contain. A ticket is sent with a group; a sample with this ticket proves that the group was given out, and
 * with which weights. It is an HMAC of both with a secret that the server stores, so a resumed controller can check tickets of an earlier
 * one. A signature proves which worker sent a message, because all workers share one user of the server.
 */

import { MessageError } from './frame.ts';
import type { Weights } from './messages.ts';
import { base64Url } from './weights.ts';

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

  /**
   * Returns a new ticket for a group that is offered with these weights. Every offer gets another ticket: a sample with the same bytes as
   * an earlier one would be ignored by the server.
   */
  async give(uid: string, weights: Weights): Promise<string> {
    const nonce = hex(crypto.getRandomValues(new Uint8Array(8)));
    const sum = await crypto.subtle.sign('HMAC', this.#key, signed(uid, weights, nonce));
    return [weights.version, weights.digest, nonce, hex(new Uint8Array(sum))].join(' ');
  }

  /** Returns a pseudo-random number in [0, 1) for a group, which only the controller can compute. */
  async secretOf(uid: string): Promise<number> {
    const data = new TextEncoder().encode(`second ${uid}`);
    return new DataView(await crypto.subtle.sign('HMAC', this.#key, data)).getUint32(0) / 2 ** 32;
  }

  /** Returns the weights for which a ticket was given; undefined if the ticket was not given for this group. */
  async weightsOf(uid: string, ticket: string): Promise<Weights | undefined> {
    const [version, digest = '', nonce = '', sum = ''] = ticket.split(' ');
    const weights = { version: Number(version), digest };
    const bytes = Uint8Array.from(sum.match(/../g) ?? [], (digits) => parseInt(digits, 16));
    return (await crypto.subtle.verify('HMAC', this.#key, bytes, signed(uid, weights, nonce))) ? weights : undefined;
  }
}

const SIGNATURE_BYTES = 64;

/** Node's Ed25519. That of nkeys is JavaScript, which takes milliseconds per signature. Undefined in a page. */
const native = globalThis.process?.getBuiltinModule?.('node:crypto');

const BASE32 = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';

/** Returns a key of 32 bytes as base64url. `text` is base32 of `prefix` bytes, the key and a checksum. */
function rawKey(text: string, prefix: number): string {
  const bits = Array.from(text, (letter) => BASE32.indexOf(letter).toString(2).padStart(5, '0')).join('');
  const bytes = (bits.match(/.{8}/g) ?? []).map((byte) => parseInt(byte, 2));
  return base64Url(Uint8Array.from(bytes.slice(prefix, prefix + 32)));
}

const jwkOf = (worker: string) => ({ kty: 'OKP', crv: 'Ed25519', x: rawKey(worker, 1) });

type Sign = (data: Uint8Array) => Uint8Array;

/** Signs the messages of a worker by its secret key. */
export class Signer {
  readonly #sign: Sign;

  private constructor(sign: Sign) {
    this.#sign = sign;
  }

  static async of(seed: string): Promise<Signer> {
    const { nkeys } = await import('@nats-io/nats-core');
    const pair = nkeys.fromSeed(new TextEncoder().encode(seed));
    if (!native) return new Signer((data) => pair.sign(data));
    const key = native.createPrivateKey({ key: { ...jwkOf(pair.getPublicKey()), d: rawKey(seed, 2) }, format: 'jwk' });
    return new Signer((data) => new Uint8Array(native.sign(null, data, key)));
  }

  /** Returns the data with a signature appended. */
  async bytes(data: Uint8Array): Promise<Uint8Array> {
    return joined(data, this.#sign(await sha256(data)));
  }

  /** Returns a short text with a signature appended. Synchronous, because a page that is closing runs no later code. */
  text(text: string): Uint8Array {
    const data = new TextEncoder().encode(text);
    return joined(data, this.#sign(data));
  }
}

/** Returns the signature at the end of signed data, as hexadecimal text. Other workers cannot know it before the data is sent. */
export const signatureOf = (bytes: Uint8Array): string => hex(bytes.subarray(-SIGNATURE_BYTES));

/**
 * Checks the signature and returns the data without it. Throws MessageError if the signature is not that of `worker`, whose name is its
 * public key.
 */
export const signedBy = async (worker: string, bytes: Uint8Array): Promise<Uint8Array> =>
  checked(worker, bytes, await sha256(bytes.subarray(0, -SIGNATURE_BYTES)));

/** Like signedBy, for data that `Signer.text` has signed. */
export const textSignedBy = (worker: string, bytes: Uint8Array): Promise<Uint8Array> =>
  checked(worker, bytes, bytes.subarray(0, -SIGNATURE_BYTES));

async function checked(worker: string, bytes: Uint8Array, signed: Uint8Array): Promise<Uint8Array> {
  const { nkeys } = await import('@nats-io/nats-core');
  try {
    const key = nkeys.fromPublic(worker);
    const signature = bytes.subarray(-SIGNATURE_BYTES);
    const isGood = native
      ? native.verify(null, signed, native.createPublicKey({ key: jwkOf(worker), format: 'jwk' }), signature)
      : key.verify(signed, signature);
    if (isGood) return bytes.subarray(0, -SIGNATURE_BYTES);
  } catch {
    // The worker's name is not a public key, or the message is shorter than a signature. The error is thrown below.
  }
  throw new MessageError('signature', `A message is not signed by the worker "${worker.slice(0, 80)}".`);
}

function joined(data: Uint8Array, signature: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(data.length + SIGNATURE_BYTES);
  bytes.set(data);
  bytes.set(signature, data.length);
  return bytes;
}

const sha256 = async (data: Uint8Array) =>
  new Uint8Array(await crypto.subtle.digest('SHA-256', data as Uint8Array<ArrayBuffer>));
const signed = (uid: string, { version, digest }: Weights, nonce: string) =>
  new TextEncoder().encode(`${version} ${digest} ${nonce} ${uid}`);
const hex = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
