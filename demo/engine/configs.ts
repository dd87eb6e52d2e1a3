/**
 * Configs and checkpoints that are shipped with the page, by the paths that the command line uses. Separate from files.ts, whose code for
 * models the page loads later.
 */

import { InputError } from '../../src/errors.ts';

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
  return new TextDecoder().decode(await fetchBytes(url, name));
}

/** Returns the bytes at a URL. Throws InputError that names the file. */
export async function fetchBytes(url: string, name: string): Promise<Uint8Array<ArrayBuffer>> {
  const response = await fetch(url);
  if (!response.ok)
    throw new InputError(
      `${name} could not be loaded: the server answered ${response.status}. Check the address and reload the page.`,
    );
  return new Uint8Array(await response.arrayBuffer());
}
