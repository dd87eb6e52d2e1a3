/** Fetches the source texts of task modules, with limits on size and time. */

import { concat } from '../../concat.ts';
import { InputError, whyUnreachable } from '../../errors.ts';
import { isLoopback } from '../../model/checkpoint/loopback.ts';

/** Limits on the source of a module, larger than any task needs. */
export interface SourceLimits {
  /** Maximum number of bytes of one file. */
  fileBytes: number;
  /** Maximum number of bytes of all files together. */
  bytes: number;
  files: number;
  /** Time limit in milliseconds for the response of one file, including its body. */
  timeoutMs: number;
}

export const SOURCE_LIMITS: SourceLimits = { fileBytes: 1_000_000, bytes: 4_000_000, files: 64, timeoutMs: 30_000 };

/** True for a URL: https://..., http://..., and schemes that are refused later. */
export const isUrl = (address: string): boolean =>
  /^[a-z][a-z\d+.-]*:\/\//i.test(address) || address.startsWith('data:');

/** Parses the URL of a module. Throws InputError unless it is https, or http to this machine. */
export function moduleUrl(address: string): URL {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  const isOpen = url?.username === '' && url.password === '';
  if (url && isOpen && (url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback(url.hostname))))
    return url;
  throw new InputError(
    `task.module is "${shown(address)}"; allowed: https://... without a user name or password, or http:// of this machine. Name a file by its path.`,
  );
}

const shown = (address: string): string => address.replace(/\/\/[^/@]*@/, '//...@').slice(0, 200);

/** Fetches the source text of a module, without redirects, cookies or referrer. Throws InputError that describes any other response. */
export async function fetchSource(address: string, limits: SourceLimits = SOURCE_LIMITS): Promise<string> {
  moduleUrl(address);
  const refuse = (what: string) => new InputError(`The task module ${shown(address)} ${what}.`);
  const ending = new AbortController();
  const timer = setTimeout(() => ending.abort(), limits.timeoutMs);
  try {
    const { signal } = ending;
    const settings = { redirect: 'manual', credentials: 'omit', referrerPolicy: 'no-referrer', signal } as const;
    const response = await fetch(address, settings);
    return await readModule(response, limits.fileBytes, refuse);
  } catch (error) {
    if (error instanceof InputError) throw error;
    if (ending.signal.aborted)
      throw refuse(`did not arrive in ${limits.timeoutMs / 1000} s. Check the address, or save the module as a file`);
    throw refuse(`could not be fetched: its server ${await whyUnreachable(address, error)}. Check the address`);
  } finally {
    clearTimeout(timer);
    ending.abort(); // stop reading the body
  }
}

async function readModule(response: Response, most: number, refuse: (what: string) => InputError): Promise<string> {
  if (response.type === 'opaqueredirect' || (response.status >= 300 && response.status < 400)) {
    const to = response.headers.get('location');
    throw refuse(`redirects${to === null ? '' : ` to ${to.slice(0, 200)}`}. Give the address that it leads to`);
  }
  if (!response.ok) throw refuse(`was not found: its server answered ${response.status}. Check the address`);
  const type = response.headers.get('content-type')?.split(';')[0].trim() ?? '';
  if (!/^($|text\/plain$|(text|application)\/(x-)?(java|ecma)script$)/i.test(type))
    throw refuse(
      `is ${type}, not text/javascript or text/plain. Change the content type of its server, or save the module as a file`,
    );
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for (const reader = response.body!.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) break;
    bytes += value.length;
    if (bytes > most) throw refuse(`is larger than ${most} bytes. Split it into several files`);
    chunks.push(value);
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(concat(Uint8Array, chunks));
  } catch {
    throw refuse('is not UTF-8 text. Save it as UTF-8');
  }
}

/** Returns the SHA-256 of a module and all its imports, in hexadecimal. */
export async function sha256Of(sources: ReadonlyMap<string, string>): Promise<string> {
  const text = JSON.stringify([...sources].sort(([a], [b]) => (a < b ? -1 : 1)));
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('');
}
