/** `?room=ADDRESS#code=CODE` in the page's address, and the connections that such a page can open. */

import { InputError } from '../../../src/errors.ts';

/** The room in the address. It is unchecked, and the visitor has not agreed yet. */
export interface AskedRoom {
  address: string;
  /** '' if the address has no code, or no longer has one: reading the code removes it from the address bar. */
  code: string;
}

/** Returns the room in the address; undefined if it has none. Removes the code from the address, so only the result contains it. */
export function takeRoom(): AskedRoom | undefined {
  const address = new URLSearchParams(location.search).get('room');
  const code = /^#code=(.*)$/s.exec(location.hash)?.[1];
  if (code !== undefined) history.replaceState(history.state, '', location.pathname + location.search);
  return address === null ? undefined : { address, code: decoded(code ?? '') };
}

function decoded(code: string): string {
  try {
    return decodeURIComponent(code);
  } catch {
    return code;
  }
}

/**
 * Returns the URL of the room's server. Throws InputError for an address that a page cannot connect to.
 * @param from address of this page
 */
export function roomUrl(address: string, from: Pick<Location, 'protocol'> = location): URL {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  if (!url || !/^wss?:$/.test(url.protocol) || url.username || url.password)
    throw new InputError(
      `room is "${address.slice(0, 80)}", but a page takes ws://HOST:PORT or wss://HOST:PORT. Copy the address that "webgrpo room" prints.`,
    );
  if (from.protocol === 'https:' && url.protocol === 'ws:' && !LOOPBACK.test(url.hostname))
    throw new InputError(
      `A page served over https can only connect to wss://. Start the room with --tls-cert and --tls-key, or open the page at http://localhost.`,
    );
  return url;
}

const LOOPBACK = /^(localhost|127\.0\.0\.1|\[::1\])$/;

/**
 * Restricts the page's connections to the room's server, or without a room forbids all sockets. The page's own policy allows sockets,
 * because it is written before a room is known. A second policy can only restrict the first.
 */
export function narrowConnections(asked: AskedRoom | undefined): void {
  const policy = document.createElement('meta');
  policy.httpEquiv = 'Content-Security-Policy';
  policy.content = `connect-src 'self' blob: data: ${asked ? socketOf(asked) : 'https: http:'}`;
  document.head.append(policy);
}

function socketOf({ address }: AskedRoom): string {
  if (!URL.canParse(address)) return '';
  const { protocol, host } = new URL(address);
  if (!/^wss?:$/.test(protocol)) return '';
  return /^[\w.-]+(:\d+)?$/.test(host) ? `${protocol}//${host}` : protocol; // a policy cannot express [::1]
}
