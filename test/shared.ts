/**
 * Reads a file of ../shared, a folder that only the developers have; undefined if the file is missing (in a user's clone, or in a browser).
 */
export async function readShared(path: string): Promise<Uint8Array | undefined> {
  if (typeof process === 'undefined' || !process.versions?.node) return undefined;
  const { readFile } = await import('node:fs/promises');
  return readFile(new URL(`../../shared/${path}`, import.meta.url)).catch(() => undefined);
}
