/** Finds the GPU, and explains what to do without one. */

export interface FoundAdapter {
  name: string;
  /** True if the adapter runs on the CPU. */
  isSoftware: boolean;
}

/** Says why training is impossible on this machine, and what to do. */
export class NoGpuError extends Error {
  override name = 'NoGpuError';
}

/** Milliseconds to wait for the adapter. A browser that takes longer counts as one without a GPU. */
const LIMIT_MS = 10_000;

/** Requests an adapter without a device. Throws NoGpuError if the browser has none, or does not answer. */
export async function findAdapter(): Promise<FoundAdapter> {
  if (!navigator.gpu) throw new NoGpuError(isSecureContext ? NO_WEBGPU : NOT_SECURE);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new NoGpuError(NO_ANSWER)), LIMIT_MS);
  });
  const asked = navigator.gpu.requestAdapter({ powerPreference: 'high-performance' }).catch((error: Error) => {
    throw new NoGpuError(`The browser refused to name a GPU: ${error.message.replace(/\.$/, '')}. ${RESTART}`);
  });
  const adapter = await Promise.race([asked, late]).finally(() => clearTimeout(timer));
  if (!adapter) throw new NoGpuError(NO_ADAPTER);
  const { vendor, architecture, description, isFallbackAdapter } = adapter.info;
  const isSoftware = isFallbackAdapter || /swiftshader|llvmpipe|lavapipe/i.test(architecture + description);
  return { name: adapterName({ vendor, architecture, description }), isSoftware };
}

/** Returns the name of an adapter for people. */
export function adapterName(info: { vendor: string; architecture: string; description: string }): string {
  return info.description || [info.vendor, info.architecture].filter(Boolean).join(' ') || 'unnamed GPU';
}

const NO_WEBGPU =
  'Training needs WebGPU, which this browser lacks. Use a current Chrome or Edge, Safari 26 or Firefox 141, or newer. ' +
  'On Linux, start Chrome with --enable-unsafe-webgpu.';

const NOT_SECURE =
  'WebGPU works only on secure pages, and this page was loaded over plain http from another machine. ' +
  'Open it through https or localhost.';

const RESTART = 'Restart the browser, then reload the page.';
const NO_ANSWER = `The browser did not answer within 10 seconds when asked for a GPU. ${RESTART}`;

const NO_ADAPTER =
  'This browser has WebGPU but cannot use a GPU. See chrome://gpu for the reason. Then turn on graphics ' +
  'acceleration in the settings, update the driver, or start Chrome with --enable-unsafe-webgpu.';
