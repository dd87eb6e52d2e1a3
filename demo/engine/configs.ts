/**
 * Configs and checkpoints that are shipped with the page, by the paths that the command line uses. Separate from files.ts, whose code for
 * models the page loads later.
 */

import { InputError, whyUnreachable } from '../../src/errors.ts';

/** The server has lost a file of the page, or does not answer. `state/missingParts.ts` says what to do. */
export class MissingPartError extends Error {
  override name = 'MissingPartError';
}

/** Maps paths in the repository to URLs. Vite inserts them and copies the files into a build. */
const CONFIGS = import.meta.glob<string>('../../configs/*.yaml', {
  query: '?url',
  import: 'default',
  eager: true,
});

/** Maps paths of checkpoint files to URLs in the same way. */
export const CHECKPOINTS = import.meta.glob<string>('../../checkpoints/*/*', {
  query: '?url',
  import: 'default',
  eager: true,
});

/** True if the checkpoint of this path is shipped with the page. */
export const isShipped = (path: string): boolean =>
  Object.keys(CHECKPOINTS).some((file) => file.startsWith(`../../${path}/`));

/** Returns the text of configs/<name>.yaml. Throws InputError. */
export async function fetchConfig(name: string): Promise<string> {
  const url = CONFIGS[`../../configs/${name}.yaml`];
  if (!url) throw new InputError(`The page has no configs/${name}.yaml. Choose one of the page's recipes.`);
  return new TextDecoder().decode(await fetchBytes(url, name, true));
}

/**
 * Returns the bytes at a URL. Throws InputError that names the file.
 * @param isPart true if the file is shipped with the page; then MissingPartError is thrown if it is missing
 */
export async function fetchBytes(url: string, name: string, isPart = false): Promise<Uint8Array<ArrayBuffer>> {
  const refused = `${name} could not be loaded`;
  const response = await fetch(url).catch(async (error: unknown) => {
    if (isPart) throw new MissingPartError(`${refused}. Reload the page.`);
    const why = await whyUnreachable(new URL(url, location.href).href, error);
    throw new InputError(`${refused}: its server ${why}. Check the address.`);
  });
  if (response.status === 404 && isPart) throw new MissingPartError(`${refused}. Reload the page.`);
  if (!response.ok)
    throw new InputError(`${refused}: the server answered ${response.status}. Check the address and reload the page.`);
  return new Uint8Array(await response.arrayBuffer());
}
