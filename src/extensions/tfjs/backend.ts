/**
 * Runs tfjs-webgpu on our GPUDevice. The library is loaded on first use. tfjs has one global engine, so only one device per process can use
 * it at a time.
 *
 * tfjs and `Gpu` record into separate encoders, so order between them exists only at a submit. Flush ours before tfjs uses a shared buffer,
 * and `submit` tfjs's before we use it.
 */

import type * as Tfjs from '@tensorflow/tfjs';
import type { WebGPUBackend } from '@tensorflow/tfjs-backend-webgpu';
import { InputError } from '../../errors.ts';
import type { Gpu, View } from '../../gpu/device.ts';

export type Tf = typeof Tfjs;

let holder: { gpu: Gpu; runtime: Promise<TfjsRuntime> } | undefined;

/** Loads tfjs and moves its WebGPU backend to the device of `gpu`. Throws while another device uses tfjs. */
export function loadTfjs(gpu: Gpu): Promise<TfjsRuntime> {
  if (holder && holder.gpu !== gpu)
    throw new Error(
      'tfjs serves one GPU device at a time and another one has it. Destroy the other tfjs engine first, or use engine "wgsl".',
    );
  holder ??= { gpu, runtime: start(gpu) };
  return holder.runtime;
}

async function start(gpu: Gpu): Promise<TfjsRuntime> {
  const [tf, { WebGPUBackend }] = await importPackages();
  // Importing the package registers a backend that would request its own device.
  if (tf.findBackendFactory('webgpu')) tf.removeBackend('webgpu');
  // By default, small tensors are computed on the CPU, which then needs a synchronous read-back.
  tf.env().set('WEBGPU_CPU_FORWARD', false);
  // The only matrix product without atomics: the same input returns the same bits.
  tf.env().set('WEBGPU_MATMUL_PROGRAM_TYPE', 3);
  const backend = new WebGPUBackend(gpu.device, gpu.device.adapterInfo);
  tf.registerBackend('webgpu', () => backend);
  if (!(await tf.setBackend('webgpu'))) throw new Error('tfjs could not start its WebGPU backend on this device.');
  return new TfjsRuntime(tf, backend);
}

/** Throws InputError if the packages are not installed. */
async function importPackages() {
  try {
    const packages = [await import('@tensorflow/tfjs'), await import('@tensorflow/tfjs-backend-webgpu')] as const;
    return [unwrap(packages[0]), unwrap(packages[1])] as const;
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message.split('\n')[0] : String(cause);
    throw new InputError(
      `engine is "tfjs", but its packages could not be loaded (${reason}). Install them with "npm install @tensorflow/tfjs ` +
        `@tensorflow/tfjs-backend-webgpu" (in a checkout: npm ci), or set engine to "wgsl".`,
      { cause },
    );
  }
}

/** Returns the exports of a module. Node loads CommonJS modules, and can put all names into `default`. */
function unwrap<T extends object>(module: T): T {
  return 'default' in module ? (module.default as T) : module;
}

/** tfjs on one device, with access to the GPU buffers of its tensors. */
export class TfjsRuntime {
  readonly tf: Tf;
  readonly #backend: WebGPUBackend;

  constructor(tf: Tf, backend: WebGPUBackend) {
    this.tf = tf;
    this.#backend = backend;
  }

  /** Returns a float32 tensor on the buffer of a view, without a copy. tfjs supports no offset, so the view must start at 0. */
  share(view: View, shape: number[]): Tfjs.Tensor {
    if (view.offset !== 0) throw new RangeError(`tfjs cannot share "${view.buffer.label}" at offset ${view.offset}.`);
    return this.tf.tensor({ buffer: view.buffer, zeroCopy: true }, shape, 'float32');
  }

  /** Submits the commands that tfjs recorded to the GPU. */
  submit(): void {
    this.#backend.endComputePassEncoder();
    this.#backend.ensureCommandEncoderReady();
    this.#backend.submitQueue();
  }

  /** Returns the buffer of a tensor. Copy from it after `submit` and before the tensor is disposed. Never bind it. */
  source(tensor: Tfjs.Tensor): View {
    this.#backend.uploadToGPU(tensor.dataId);
    const buffer = this.#backend.tensorMap.get(tensor.dataId).resource as GPUBuffer;
    return { buffer, offset: 0, bytes: tensor.size * 4, id: -1 };
  }

  /**
   * Destroys the buffers that tfjs keeps for reuse. tfjs reuses exact sizes only and never frees, so batches of many sizes would accumulate
   * copies of all activations.
   */
  trim(): void {
    const manager = this.#backend.bufferManager as unknown as BufferPool;
    for (const list of manager.freeBuffers.values()) {
      for (const buffer of list) {
        manager.numBytesAllocated -= buffer.size;
        buffer.destroy();
      }
      manager.numFreeBuffers -= list.length;
      list.length = 0;
    }
  }

  /** GPU bytes that tfjs holds, in use or kept for reuse. */
  get bytes(): number {
    return this.#backend.memory().numBytesAllocatedInGPU;
  }

  /** Frees all memory of tfjs. Another device can use tfjs afterwards. */
  destroy(): void {
    this.tf.removeBackend('webgpu');
    holder = undefined;
  }
}

/** Private members of tfjs's BufferManager (4.22). */
interface BufferPool {
  freeBuffers: Map<string, GPUBuffer[]>;
  numFreeBuffers: number;
  numBytesAllocated: number;
}
