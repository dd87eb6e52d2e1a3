/** Chooses a device's adapter, and describes it: its name and its features. */

import { isInPage, NoAdapterError } from '../errors.ts';

export interface AdapterSummary {
  vendor: string;
  architecture: string;
  description: string;
  /** True if the adapter is software that runs on the CPU: correct, but slow. */
  isSoftware: boolean;
  /** Smallest and largest subgroup size; 0 without the WebGPU feature "subgroups". */
  subgroupSize: number;
  subgroupMaxSize: number;
  features: string[];
}

/** Maximum size in bytes of a buffer that can be bound completely; a multiple of 256. */
export const bindingBytes = ({
  maxStorageBufferBindingSize,
  maxBufferSize,
}: Pick<GPUSupportedLimits, 'maxStorageBufferBindingSize' | 'maxBufferSize'>): number =>
  Math.floor(Math.min(maxStorageBufferBindingSize, maxBufferSize) / 256) * 256;

/** Milliseconds within which the browser must answer a request for an adapter or a device. */
const ANSWER_MS = 30_000;

/** Returns the answer to a request. Throws NoAdapterError if it takes too long: a GPU process that hangs rejects no request. */
async function inTime<T>(request: Promise<T>, what: 'adapter' | 'device'): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    const message =
      `The GPU gave out no ${what} within ${ANSWER_MS / 1000} seconds. ` +
      `Close other programs that use it, then ${isInPage() ? 'restart the browser and reload the page' : 'start again'}.`;
    timer = setTimeout(() => reject(new NoAdapterError(message)), ANSWER_MS);
  });
  return Promise.race([request, late]).finally(() => clearTimeout(timer));
}

/** True if the adapter that `openAdapter` would choose supports 16-bit floats in shaders. */
export async function offersHalves(): Promise<boolean> {
  const adapter = await globalThis.navigator?.gpu?.requestAdapter({ powerPreference: 'high-performance' });
  return adapter?.features.has('shader-f16') ?? false;
}

/** Returns the adapter that a device would be opened on. Throws NoAdapterError. */
export async function requestAdapter(): Promise<GPUAdapter> {
  const gpu = globalThis.navigator?.gpu;
  if (!gpu && globalThis.isSecureContext === false)
    throw new NoAdapterError(
      'WebGPU works only on secure pages, and this one was loaded over plain http from another machine. Open it through https or localhost.',
    );
  if (!gpu)
    throw new NoAdapterError(
      'This environment has no WebGPU (navigator.gpu is undefined). Use a browser with WebGPU, or in Node call installWebGpu() of "webgrpo/node" first.',
    );
  const adapter = await inTime(gpu.requestAdapter({ powerPreference: 'high-performance' }), 'adapter');
  if (!adapter)
    throw new NoAdapterError(
      'WebGPU found no adapter. In headless Chromium pass --enable-unsafe-webgpu; in Node install a Chromium, whose software driver is found, or set VK_ICD_FILENAMES to a Vulkan driver.',
    );
  return adapter;
}

/** Opens an adapter, and a device on it with all features that kernels use. Throws NoAdapterError. */
export async function openAdapter(): Promise<{ device: GPUDevice; summary: AdapterSummary }> {
  const adapter = await requestAdapter();
  const wanted: GPUFeatureName[] = ['shader-f16', 'subgroups', 'timestamp-query'];
  const limits = adapter.limits;
  const asked = adapter.requestDevice({
    requiredFeatures: wanted.filter((f) => adapter.features.has(f)),
    requiredLimits: {
      maxStorageBufferBindingSize: limits.maxStorageBufferBindingSize,
      maxBufferSize: limits.maxBufferSize,
      maxStorageBuffersPerShaderStage: limits.maxStorageBuffersPerShaderStage,
      maxComputeWorkgroupStorageSize: limits.maxComputeWorkgroupStorageSize,
    },
  });
  const device = await inTime(asked, 'device');
  return { device, summary: summaryOf(adapter.info, device.features) };
}

/** Returns the name of an adapter, and those of its features that the engine uses. */
export function summaryOf(info: GPUAdapterInfo, features: GPUSupportedFeatures): AdapterSummary {
  const { vendor, architecture, description } = info;
  const isSoftware = info.isFallbackAdapter || /swiftshader|llvmpipe|lavapipe/i.test(architecture + description);
  const [subgroupSize, subgroupMaxSize] = features.has('subgroups')
    ? [info.subgroupMinSize, info.subgroupMaxSize]
    : [0, 0];
  return {
    vendor,
    architecture,
    description,
    isSoftware,
    subgroupSize,
    subgroupMaxSize,
    features: [...features],
  };
}
