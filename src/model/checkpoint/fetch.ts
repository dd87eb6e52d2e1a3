/**
 * Loads a checkpoint over HTTP into memory, for small models such as those in the npm package. Large models are
 * streamed by `hub.ts`.
 */

import { InputError } from '../../errors.ts';
import { type CheckpointWithTokenizer, loadCheckpoint, withTokenizer } from './checkpoint.ts';
import { isHtml, OPTIONAL_FILES } from './sourceFiles.ts';

/**
 * Files that many checkpoints lack. If one is missing, development servers answer with their start page, so an HTML
 * page counts as missing.
 */
const MAY_BE_ABSENT = [...OPTIONAL_FILES, 'model.safetensors'];

/**
 * Returns the model and tokenizer of a folder of files in Hugging Face format. Throws InputError with the URL if a file
 * is missing or the server returns an HTML page.
 * @param from URL of the folder (relative to the page, as for fetch), or the URL of each file by its name
 * (`webgrpo/checkpoints`)
 */
export async function fetchCheckpoint(
  from: string | URL | Readonly<Record<string, string | URL>>,
): Promise<CheckpointWithTokenizer> {
  const isFolder = typeof from === 'string' || from instanceof URL;
  const checkpoint = await loadCheckpoint(async (file) => {
    if (isFolder) return fetchFile(`${String(from).replace(/\/+$/, '')}/${file}`, file);
    return Object.hasOwn(from, file) ? fetchFile(String(from[file]), file) : undefined;
  });
  return withTokenizer(isFolder ? String(from) : 'The checkpoint', checkpoint);
}

async function fetchFile(url: string, file: string): Promise<Uint8Array | undefined> {
  const response = await fetch(url).catch((cause: unknown) => {
    throw new InputError(`${url} could not be fetched (${String(cause)}). Check the address.`, { cause });
  });
  if (response.status === 404) return undefined;
  if (!response.ok) throw new InputError(`${url} could not be fetched: the server answered ${response.status}.`);
  const bytes = new Uint8Array(await response.arrayBuffer());
  if (!response.headers.get('content-type')?.includes('text/html') && !isHtml(bytes)) return bytes;
  if (MAY_BE_ABSENT.includes(file)) return undefined;
  throw new InputError(
    `${url} is an HTML page and not the checkpoint's ${file}: the server has no such file and answers with its start page. ` +
      `Put the checkpoint where the server finds it (Vite: the folder public/), or correct the address.`,
  );
}
