import { type CheckpointWithTokenizer, loadCheckpoint, withTokenizer } from '../../src/model/checkpoint/checkpoint.ts';

/** Returns the bytes of a file in test/fixtures. */
export const readFixture = (path: string): Promise<Uint8Array> => readRepositoryFile(`test/fixtures/${path}`);

/** Returns the bytes of a file of the repository, read from disk in Node and from the test server in a browser. */
async function readRepositoryFile(path: string): Promise<Uint8Array> {
  const here: string = import.meta.url; // a variable, so that Vite does not bundle the URL below as an asset
  const url = new URL(`../../${path}`, here);
  if (typeof process !== 'undefined' && process.versions?.node) {
    const { readFile } = await import('node:fs/promises');
    return readFile(url);
  }
  const response = await fetch(url);
  if (!response.ok) throw new Error(`GET ${url.href} gave ${response.status}; the test server must serve ${path}.`);
  return new Uint8Array(await response.arrayBuffer());
}

export async function readFixtureJson<T>(path: string): Promise<T> {
  return JSON.parse(new TextDecoder().decode(await readFixture(path))) as T;
}

/** Returns the model of a folder of the repository, such as checkpoints/gsm8k-tool. */
export async function readShipped(folder: string): Promise<CheckpointWithTokenizer> {
  const read = (file: string) => readRepositoryFile(`${folder}/${file}`).catch(() => undefined);
  return withTokenizer(folder, await loadCheckpoint(read));
}
