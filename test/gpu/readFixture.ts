/** Returns the bytes of a file in test/fixtures, read from disk in Node and from the test server in a browser. */
export async function readFixture(path: string): Promise<Uint8Array> {
  const here: string = import.meta.url; // a variable, so that Vite does not bundle the URL below as an asset
  const url = new URL(`../fixtures/${path}`, here);
  if (typeof process !== 'undefined' && process.versions?.node) {
    const { readFile } = await import('node:fs/promises');
    return readFile(url);
  }
  const response = await fetch(url);
  if (!response.ok)
    throw new Error(`GET ${url.href} gave ${response.status}; the test server must serve test/fixtures.`);
  return new Uint8Array(await response.arrayBuffer());
}

export async function readFixtureJson<T>(path: string): Promise<T> {
  return JSON.parse(new TextDecoder().decode(await readFixture(path))) as T;
}
