/** Files that come with the page, by the paths the command line uses; apart from files.ts, whose code for models the page loads later. */

import { InputError } from '../../src/errors.ts';

/** Path in the repository to URL; Vite fills these in, and copies the files into a build. */
const CONFIGS = import.meta.glob<string>('../../configs/*.yaml', {
  query: '?url',
  import: 'default',
  eager: true,
});

/** Likewise. */
export const CHECKPOINTS = import.meta.glob<string>('../../checkpoints/*/*', {
  query: '?url',
  import: 'default',
  eager: true,
});

/** True if the checkpoint of this path comes with the page. */
export const isShipped = (path: string): boolean =>
  Object.keys(CHECKPOINTS).some((file) => file.startsWith(`../../${path}/`));

/** Text of configs/<name>.yaml. Throws InputError. */
export async function fetchConfig(name: string): Promise<string> {
  const url = CONFIGS[`../../configs/${name}.yaml`];
  if (!url) throw new InputError(`The page has no configs/${name}.yaml. Choose one of the page's recipes.`);
  return new TextDecoder().decode(await fetchBytes(url, name));
}

export async function fetchBytes(url: string, name: string): Promise<Uint8Array<ArrayBuffer>> {
  const response = await fetch(url);
  if (!response.ok)
    throw new InputError(
      `${name} could not be loaded: the server answered ${response.status}. Check the address and reload the page.`,
    );
  return new Uint8Array(await response.arrayBuffer());
}
