/**
 * Tickets of groups: a worker gets one with the group and gives it back with each sample, so that no worker can write samples of a group that
 * it was not given. A ticket follows from its group and a secret, so that a controller that comes back knows those it gave out.
 */

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

  /** A new one: the samples of each are others to the stream, so that a group can be generated again. */
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

const signed = (nonce: string, uid: string) => new TextEncoder().encode(`${nonce} ${uid}`);
const hex = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
