/**
 * Runs the WebGPU backend of tfjs on our GPUDevice. The library is loaded when it is first needed. tfjs has one global engine, so only one
 * device per process can use it at a time.
 *
 * tfjs and `Gpu` record GPU commands into separate encoders. Commands of one are certain to run before commands of the other only once they
 * have been submitted. Flush `Gpu` before tfjs uses a shared buffer, and call `submit` before `Gpu` uses a buffer of tfjs.
 */

import type * as Tfjs from '@tensorflow/tfjs';
import type { WebGPUBackend } from '@tensorflow/tfjs-backend-webgpu';
import { InputError } from '../../errors.ts';
import type { Gpu, View } from '../../gpu/device.ts';

export type Tf = typeof Tfjs;

let holder: { gpu: Gpu; runtime: Promise<TfjsRuntime> } | undefined;

/**
 * Loads tfjs and creates its WebGPU backend on the device of `gpu`. Throws if another device already uses tfjs. A device that is lost or
 * destroyed, or on which tfjs did not start, does not use it any more.
 */
export function loadTfjs(gpu: Gpu): Promise<TfjsRuntime> {
  if (holder && holder.gpu !== gpu)
    throw new Error(
      'tfjs serves one GPU device at a time and another one has it. Destroy the other tfjs engine first, or use engine "wgsl".',
    );
  if (!holder) {
    holder = { gpu, runtime: start(gpu) };
    const release = () => void (holder?.gpu === gpu && (holder = undefined));
    holder.runtime.catch(release);
    void gpu.device.lost.then(release);
  }
  return holder.runtime;
}

async function start(gpu: Gpu): Promise<TfjsRuntime> {
  const [tf, { WebGPUBackend }] = await importPackages();
  // The import has registered a backend that would request its own device, and an earlier engine can have left its own. Remove it.
  if (tf.findBackendFactory('webgpu')) tf.removeBackend('webgpu');
  // By default tfjs computes small tensors on the CPU, for which it must read them back synchronously.
  tf.env().set('WEBGPU_CPU_FORWARD', false);
  // Selects the only matmul program without atomics, so that the same input always gives the same bits.
  tf.env().set('WEBGPU_MATMUL_PROGRAM_TYPE', 3);
  const backend = new WebGPUBackend(gpu.device, gpu.device.adapterInfo);
  tf.registerBackend('webgpu', () => backend);
  if (!(await tf.setBackend('webgpu'))) throw new Error('tfjs could not start its WebGPU backend on this device.');
  return new TfjsRuntime(tf, backend, gpu);
}

/** Imports the tfjs packages. Throws InputError if they are not installed. */
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

/** Returns the exports of an imported package. In Node the packages are CommonJS, whose exports can all be inside `default`. */
function unwrap<T extends object>(module: T): T {
  return 'default' in module ? (module.default as T) : module;
}

/** tfjs on one GPU device, with access to the GPU buffers of its tensors. */
export class TfjsRuntime {
  readonly tf: Tf;
  readonly #backend: WebGPUBackend;
  readonly #gpu: Gpu;

  constructor(tf: Tf, backend: WebGPUBackend, gpu: Gpu) {
    this.tf = tf;
    this.#backend = backend;
    this.#gpu = gpu;
  }

  /**
   * Returns a float32 tensor that uses the buffer of a view without a copy. The view must start at offset 0, because tfjs supports no
   * other.
   */
  share(view: View, shape: number[]): Tfjs.Tensor {
    if (view.offset !== 0) throw new RangeError(`tfjs cannot share "${view.buffer.label}" at offset ${view.offset}.`);
    return this.tf.tensor({ buffer: view.buffer, zeroCopy: true }, shape, 'float32');
  }

  /** Submits the GPU commands that tfjs has recorded. */
  submit(): void {
    this.#backend.endComputePassEncoder();
    this.#backend.ensureCommandEncoderReady();
    this.#backend.submitQueue();
  }

  /** Returns the GPU buffer of a tensor. Only copy from it, after `submit` and before the tensor is disposed; never bind it. */
  source(tensor: Tfjs.Tensor): View {
    this.#backend.uploadToGPU(tensor.dataId);
    const buffer = this.#backend.tensorMap.get(tensor.dataId).resource as GPUBuffer;
    return { buffer, offset: 0, bytes: tensor.size * 4, id: -1 };
  }

  /**
   * Destroys the free buffers in tfjs's pool. tfjs reuses a buffer only for exactly the same size and never destroys one, so batches of
   * many different sizes would fill the memory with activations.
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

  /** GPU memory that tfjs has allocated in bytes, including free buffers in its pool. */
  get bytes(): number {
    return this.#backend.memory().numBytesAllocatedInGPU;
  }

  /** Frees all GPU memory of tfjs. Another device can then use tfjs. */
  destroy(): void {
    if (holder?.gpu !== this.#gpu) return;
    this.tf.removeBackend('webgpu');
    holder = undefined;
  }
}

/** Private fields of tfjs's BufferManager (version 4.22). */
interface BufferPool {
  freeBuffers: Map<string, GPUBuffer[]>;
  numFreeBuffers: number;
  numBytesAllocated: number;
}
