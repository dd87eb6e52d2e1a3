/** Reads a file of the developers' ../shared folder; undefined if it is missing (a user's clone, a browser). */
export async function readShared(path: string): Promise<Uint8Array | undefined> {
  if (typeof process === 'undefined' || !process.versions?.node) return undefined;
  const { readFile } = await import('node:fs/promises');
  return readFile(new URL(`../../shared/${path}`, import.meta.url)).catch(() => undefined);
}
