/**
 * tfjs-webgpu on our GPUDevice. The library is loaded on first use only; it keeps one global engine, so one device of a
 * process can have it at a time.
 *
 * tfjs and `Gpu` record into encoders of their own, so order between them exists only at a submit: flush ours before tfjs
 * touches a shared buffer, `submit` tfjs's before we do.
 */

import type * as Tfjs from '@tensorflow/tfjs';
import type { WebGPUBackend } from '@tensorflow/tfjs-backend-webgpu';
import { InputError } from '../../errors.ts';
import type { Gpu, View } from '../../gpu/device.ts';

export type Tf = typeof Tfjs;

let holder: { gpu: Gpu; runtime: Promise<TfjsRuntime> } | undefined;

/** Loads tfjs and puts its WebGPU backend on the device of `gpu`. Throws while another device has it. */
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
  // Importing the package registers a backend that would ask for a device of its own.
  if (tf.findBackendFactory('webgpu')) tf.removeBackend('webgpu');
  // Small tensors would else be computed on the CPU, which then needs a synchronous read-back.
  tf.env().set('WEBGPU_CPU_FORWARD', false);
  // The one matrix product without atomics, so that the same input gives the same bits.
  tf.env().set('WEBGPU_MATMUL_PROGRAM_TYPE', 3);
  const backend = new WebGPUBackend(gpu.device, gpu.device.adapterInfo);
  tf.registerBackend('webgpu', () => backend);
  if (!(await tf.setBackend('webgpu'))) throw new Error('tfjs could not start its WebGPU backend on this device.');
  return new TfjsRuntime(tf, backend);
}

/** Throws InputError if they are not installed. */
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

/** Node sees CommonJS modules, whose names may all lie in `default`. */
function unwrap<T extends object>(module: T): T {
  return 'default' in module ? (module.default as T) : module;
}

export class TfjsRuntime {
  readonly tf: Tf;
  readonly #backend: WebGPUBackend;

  constructor(tf: Tf, backend: WebGPUBackend) {
    this.tf = tf;
    this.#backend = backend;
  }

  /** A float32 tensor on the buffer of a view, without a copy. tfjs takes no offset, so the view must have none. */
  share(view: View, shape: number[]): Tfjs.Tensor {
    if (view.offset !== 0) throw new RangeError(`tfjs cannot share "${view.buffer.label}" at offset ${view.offset}.`);
    return this.tf.tensor({ buffer: view.buffer, zeroCopy: true }, shape, 'float32');
  }

  /** Sends what tfjs has recorded to the GPU. */
  submit(): void {
    this.#backend.endComputePassEncoder();
    this.#backend.ensureCommandEncoderReady();
    this.#backend.submitQueue();
  }

  /** The buffer behind a tensor, to copy from after `submit` and before the tensor is disposed; never to bind. */
  source(tensor: Tfjs.Tensor): View {
    this.#backend.uploadToGPU(tensor.dataId);
    const buffer = this.#backend.tensorMap.get(tensor.dataId).resource as GPUBuffer;
    return { buffer, offset: 0, bytes: tensor.size * 4, id: -1 };
  }

  /**
   * Destroys the buffers that tfjs keeps for reuse. It reuses exact sizes only and never frees, so batches of ever
   * different sizes would pile up copies of all activations.
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

  /** Frees everything of tfjs; another device may have it then. */
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
