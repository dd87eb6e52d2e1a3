/**
 * Requests an adapter from Dawn and prints it as JSON. Runs as a separate process, because drivers can crash and read the environment only
 * once.
 */

/** Exported so that it stays reachable: Dawn crashes if this object is collected. */
/** @type {GPU} */
export let dawn;

async function probe() {
  const { create, globals } = await import('webgpu');
  Object.assign(globalThis, globals);
  dawn = create([]);
  const adapter = await dawn.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) return null;
  const { vendor, architecture, device, description, isFallbackAdapter } = adapter.info;
  const software = isFallbackAdapter || /swiftshader|llvmpipe|lavapipe/i.test(`${architecture} ${description}`);
  return { name: description || device || `${vendor} ${architecture}`, software };
}

const found = await probe();
process.stdout.write(`\n${JSON.stringify(found)}\n`, () => process.exit(0));
