/**
 * The one object that owns the GPUDevice: buffers, pipelines, cached bind groups, dispatch, read-back, counters.
 *
 * Everything recorded goes into one encoder and one compute pass until something needs a submit (a read-back, a host
 * write, a full params ring). Nothing is created in a steady step: pipelines are cached by kernel and overrides, bind
 * groups by layout and views, params go into a ring that is uploaded once per submit, staging buffers are reused.
 */

import { PassTimer, timesByLabel } from './passTimer.ts';
import { DeviceLostError, GpuError, NoAdapterError, OutOfMemoryError } from '../errors.ts';
import type { Kernel, Scalar } from './kernel.ts';
import type { PackedFormat } from './packedFormat.ts';

const PARAMS_BYTES = 1 << 20; // 4096 dispatches at 256 bytes; one more flushes by itself

/** Part of a GPUBuffer. `offset` is a multiple of 256 bytes, `bytes` of 4. */
export interface View {
  buffer: GPUBuffer;
  offset: number;
  bytes: number;
  /** Unique; what bind groups are cached by. */
  id: number;
  /** Weights kept in fewer bits, and how many; absent = 4-byte values. */
  packed?: { format: PackedFormat; elements: number };
  /** Holds 16-bit floats; absent = 4-byte values. */
  half?: boolean;
}

export interface AdapterSummary {
  vendor: string;
  architecture: string;
  description: string;
  /** Runs on the CPU: right, but slow. */
  isSoftware: boolean;
  /** Smallest and largest subgroup; 0 without the feature. */
  subgroupSize: number;
  subgroupMaxSize: number;
  features: string[];
}

/** What has been created so far; a steady step must leave all but dispatches, submits and mappedBytes unchanged. */
export interface GpuCounters {
  buffers: number;
  bytes: number;
  pipelines: number;
  bindGroups: number;
  dispatches: number;
  submits: number;
  mappedBytes: number;
}

export interface GpuOptions {
  powerPreference?: GPUPowerPreference;
  /** Refuse to allocate more than this; VRAM itself cannot be queried. */
  maxBytes?: number;
  /** Weights beyond this go to several buffers; absent = what the device binds at most. */
  maxArenaBytes?: number;
}

/** Whether the adapter that `Gpu.create` would take has 16-bit floats in shaders. */
export async function offersHalves(): Promise<boolean> {
  const adapter = await globalThis.navigator?.gpu?.requestAdapter({ powerPreference: 'high-performance' });
  return adapter?.features.has('shader-f16') ?? false;
}

interface Layout {
  id: number;
  gpu: GPUBindGroupLayout;
}

/** Bytes of the largest buffer that can be bound as a whole; a multiple of 256. */
export const bindingBytes = ({ maxStorageBufferBindingSize, maxBufferSize }: GPUSupportedLimits): number =>
  Math.floor(Math.min(maxStorageBufferBindingSize, maxBufferSize) / 256) * 256;

let nextViewId = 0;

export class Gpu {
  readonly device: GPUDevice;
  readonly adapter: AdapterSummary;
  readonly counters: GpuCounters = {
    buffers: 0,
    bytes: 0,
    pipelines: 0,
    bindGroups: 0,
    dispatches: 0,
    submits: 0,
    mappedBytes: 0,
  };
  /** Largest buffer that weights, gradients or moments are laid out in; a multiple of 256. */
  readonly maxArenaBytes: number;
  readonly #maxBytes: number;
  readonly #pipelines = new Map<string, { pipeline: GPUComputePipeline; layout: Layout }>();
  readonly #bindGroups = new Map<string, GPUBindGroup>();
  readonly #later: Kernel[] = [];
  readonly #compiling = new Map<string, Promise<void>>();
  readonly #layouts = new Map<string, Layout>();
  readonly #layoutOf = new Map<number, Layout>(); // by kernel
  readonly #params: GPUBuffer;
  readonly #paramsCpu = new DataView(new ArrayBuffer(PARAMS_BYTES)); // filled by dispatch, uploaded by flush
  readonly #staging: { buffer: GPUBuffer; busy: boolean }[] = [];
  #timer: PassTimer | undefined;
  #paramsUsed = 0;
  #encoder: GPUCommandEncoder | undefined;
  #pass: GPUComputePassEncoder | undefined;
  #failure: Error | undefined;
  /** The form of a kernel for its buffers; absent until `useHalves`: kernels are then taken as they are. */
  #forHalves: ((kernel: Kernel, buffers: Readonly<Record<string, View>>) => Kernel) | undefined;

  constructor(device: GPUDevice, adapter: AdapterSummary, options: GpuOptions = {}) {
    this.device = device;
    this.adapter = adapter;
    this.#maxBytes = options.maxBytes ?? Infinity;
    this.maxArenaBytes = Math.min(options.maxArenaBytes ?? Infinity, this.#maxBindingBytes);
    this.#params = device.createBuffer({
      label: 'params',
      size: PARAMS_BYTES,
      usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
    });
    device.addEventListener('uncapturederror', (event) => {
      this.#failure ??=
        event.error instanceof GPUOutOfMemoryError
          ? new OutOfMemoryError(event.error.message)
          : new GpuError(event.error.message);
    });
    void device.lost.then((info) => {
      this.#failure = new DeviceLostError(info.reason, info.message);
    });
  }

  /** Asks for an adapter and a device with everything the adapter offers. Throws NoAdapterError. */
  static async create(options: GpuOptions = {}): Promise<Gpu> {
    const gpu = globalThis.navigator?.gpu;
    if (!gpu)
      throw new NoAdapterError(
        'This environment has no WebGPU (navigator.gpu is undefined). Use a browser with WebGPU, or in Node load the "webgpu" package first.',
      );
    const adapter = await gpu.requestAdapter({ powerPreference: options.powerPreference ?? 'high-performance' });
    if (!adapter)
      throw new NoAdapterError(
        'WebGPU found no adapter. In headless Chromium pass --enable-unsafe-webgpu; in Node set VK_ICD_FILENAMES to a Vulkan driver (npm start does this).',
      );
    const wanted: GPUFeatureName[] = ['shader-f16', 'subgroups', 'timestamp-query'];
    const limits = adapter.limits;
    const device = await adapter.requestDevice({
      requiredFeatures: wanted.filter((f) => adapter.features.has(f)),
      requiredLimits: {
        maxStorageBufferBindingSize: limits.maxStorageBufferBindingSize,
        maxBufferSize: limits.maxBufferSize,
        maxStorageBuffersPerShaderStage: limits.maxStorageBuffersPerShaderStage,
        maxComputeWorkgroupStorageSize: limits.maxComputeWorkgroupStorageSize,
      },
    });
    const { vendor, architecture, description } = adapter.info;
    const isSoftware =
      adapter.info.isFallbackAdapter || /swiftshader|llvmpipe|lavapipe/i.test(architecture + description);
    const subgroups = device.features.has('subgroups');
    const [subgroupSize, subgroupMaxSize] = subgroups
      ? [adapter.info.subgroupMinSize, adapter.info.subgroupMaxSize]
      : [0, 0];
    const summary = { vendor, architecture, description, isSoftware, subgroupSize, subgroupMaxSize };
    return new Gpu(device, { ...summary, features: [...device.features] }, options);
  }

  /** Allocates `data` bytes (zeroed), or a copy of `data`. */
  buffer(label: string, data: number | Float32Array | Uint32Array): View {
    const bytes = Math.max(4, Math.ceil((typeof data === 'number' ? data : data.byteLength) / 4) * 4);
    const limit = this.#maxBindingBytes;
    if (bytes > limit)
      throw new RangeError(
        `Buffer "${label}" needs ${bytes} bytes but this device binds at most ${limit}; split the tensor or shrink the batch.`,
      );
    if (this.counters.bytes + bytes > this.#maxBytes)
      throw new OutOfMemoryError(
        `Buffer "${label}" needs ${bytes} bytes but ${this.counters.bytes} of the ${this.#maxBytes} bytes allowed are in use; lower actor.maxTokenLen or rollout.maxSlots.`,
      );
    const buffer = this.device.createBuffer({
      label,
      size: bytes,
      usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST,
    });
    this.counters.buffers++;
    this.counters.bytes += bytes;
    if (typeof data !== 'number') this.device.queue.writeBuffer(buffer, 0, data as Float32Array<ArrayBuffer>);
    return { buffer, offset: 0, bytes, id: nextViewId++ };
  }

  /** Loads what `halves` and `asHalves` need, which come after it. */
  async useHalves(): Promise<void> {
    this.#forHalves = (await import('./halves.ts')).forHalves;
  }

  /** Room for n 16-bit floats, zeroed. Needs shader-f16. */
  halves(label: string, n: number): View {
    return this.asHalves(this.buffer(label, n * 2));
  }

  /** The same bytes as 16-bit floats; kernels bound to the view load and store those. */
  asHalves(view: View): View {
    if (!this.#forHalves) throw new Error('Gpu.useHalves() must come before buffers of halves.');
    return { ...view, half: true };
  }

  /** A part of a view, for arenas. Offsets must be multiples of 256 bytes. */
  slice(view: View, offset: number, bytes: number): View {
    if (offset % 256 !== 0 || offset + bytes > view.bytes)
      throw new RangeError(
        `A slice of "${view.buffer.label}" at ${offset} of ${bytes} bytes must start at a multiple of 256 and end by ${view.bytes}.`,
      );
    const part: View = { buffer: view.buffer, offset: view.offset + offset, bytes, id: nextViewId++ };
    return view.half ? { ...part, half: true } : part;
  }

  /** Frees the buffer behind a view, and every bind group that may hold it. */
  free(view: View): void {
    this.#submitPending();
    this.#bindGroups.clear();
    this.counters.buffers--;
    this.counters.bytes -= view.buffer.size;
    view.buffer.destroy();
  }

  /** Host to device. What was recorded before still sees the old contents. */
  write(view: View, data: Float32Array | Uint32Array | Int32Array, elementOffset = 0): void {
    if (elementOffset * 4 + data.byteLength > view.bytes)
      throw new RangeError(
        `Writing ${data.byteLength} bytes at ${elementOffset * 4} into "${view.buffer.label}", which holds ${view.bytes}.`,
      );
    this.#submitPending();
    this.device.queue.writeBuffer(view.buffer, view.offset + elementOffset * 4, data as Float32Array<ArrayBuffer>);
  }

  /** Device to device, recorded in order. */
  copy(from: View, to: View, bytes = Math.min(from.bytes, to.bytes), fromOffset = 0, toOffset = 0): void {
    this.#endPass();
    this.#encode().copyBufferToBuffer(from.buffer, from.offset + fromOffset, to.buffer, to.offset + toOffset, bytes);
  }

  /** Sets a view to zero, recorded in order. */
  clear(view: View): void {
    this.#endPass();
    this.#encode().clearBuffer(view.buffer, view.offset, view.bytes);
  }

  /**
   * Records `groups` workgroups of a kernel (in the form for halves, where it is bound to some), folded over x and y. They run
   * at the next flush or read, in order.
   */
  dispatch<R extends string, W extends string, P extends string>(
    plain: Kernel<R, W, P>,
    buffers: Record<R | W, View>,
    params: Record<P, number>,
    groups: number,
    overrides?: Record<string, number>,
  ): void {
    if (groups === 0) return;
    this.#throwIfFailed();
    const kernel = this.#forHalves?.(plain as Kernel, buffers) ?? plain;
    const { pipeline, layout } = this.#pipeline(kernel, overrides);
    const offset = this.#writeParams(kernel.params, params);
    const bindGroup = this.#bindGroup(kernel, layout, buffers);
    this.#pass ??= this.#encode().beginComputePass(this.#timer?.next());
    this.#pass.setPipeline(pipeline);
    this.#pass.setBindGroup(0, bindGroup, [offset]);
    const max = 65535; // maxComputeWorkgroupsPerDimension that every device has
    // The fold must not differ between runs of one size; kernels recover the index as wg.y * grid.x + wg.x.
    this.#pass.dispatchWorkgroups(Math.min(groups, max), Math.ceil(groups / max));
    this.counters.dispatches++;
  }

  /** Sends everything recorded to the GPU, without waiting for it. */
  flush(): void {
    this.#throwIfFailed();
    this.#submitPending();
  }

  /** Flushes, waits, and copies views to the CPU. Slow: once a step, not once a layer. */
  async read(...views: View[]): Promise<ArrayBuffer[]> {
    return this.readRanges(views.map((view) => ({ view, offset: 0, bytes: view.bytes })));
  }

  /** As `read`, for parts of views; offsets and sizes in bytes, multiples of 4. */
  async readRanges(parts: { view: View; offset: number; bytes: number }[]): Promise<ArrayBuffer[]> {
    this.#throwIfFailed();
    const total = parts.reduce((sum, p) => sum + p.bytes, 0);
    if (total === 0) return parts.map(() => new ArrayBuffer(0));
    const staging = this.#takeStaging(total);
    try {
      this.#endPass();
      let at = 0;
      for (const { view, offset, bytes } of parts) {
        if (bytes > 0) this.#encode().copyBufferToBuffer(view.buffer, view.offset + offset, staging.buffer, at, bytes);
        at += bytes;
      }
      this.#submitPending();
      await staging.buffer.mapAsync(GPUMapMode.READ, 0, total).catch((error: unknown) => {
        throw this.#failure ?? error;
      });
      this.#throwIfFailed();
      this.counters.mappedBytes += total;
      const mapped = staging.buffer.getMappedRange(0, total);
      at = 0;
      return parts.map(({ bytes }) => mapped.slice(at, (at += bytes)));
    } finally {
      if (staging.buffer.mapState !== 'unmapped') staging.buffer.unmap();
      staging.busy = false;
      this.#prepareNow();
    }
  }

  /** Times compute passes from now on, as `timeAs` labels them; false where the adapter has no timestamps. */
  startTimer(): boolean {
    if (!this.device.features.has('timestamp-query')) return false;
    this.#timer ??= new PassTimer(this.device, nextViewId++);
    return true;
  }

  stopTimer(): void {
    this.#endPass();
    this.#timer?.destroy();
    this.#timer = undefined;
  }

  /** What is recorded from now on counts towards `label`; undefined = is not timed. Does nothing without `startTimer`. */
  timeAs(label: string | undefined): void {
    if (!this.#timer || this.#timer.label === label) return;
    this.#endPass();
    this.#timer.label = label;
  }

  /** As `read`, with the milliseconds of labelled passes since the last call; absent without `startTimer`. */
  async readTimed(...views: View[]): Promise<{ data: ArrayBuffer[]; times?: Record<string, number> }> {
    const timer = this.#timer;
    if (!timer) return { data: await this.read(...views) };
    this.#endPass();
    const labels = timer.resolve(this.#encode());
    const stamps = { view: timer.view, offset: 0, bytes: 16 * labels.length };
    const parts = views.map((view) => ({ view, offset: 0, bytes: view.bytes }));
    const read = await this.readRanges([...parts, stamps]);
    return { data: read.slice(0, -1), times: timesByLabel(labels, read[views.length]) };
  }

  async readF32(view: View): Promise<Float32Array<ArrayBuffer>> {
    return new Float32Array((await this.read(view))[0]);
  }

  /** Waits until everything submitted has run. */
  async idle(): Promise<void> {
    this.flush();
    await this.device.queue.onSubmittedWorkDone();
    this.#throwIfFailed();
  }

  /** Compiles a pipeline ahead of use, off the critical path. Used before it is there, it is compiled a second time. */
  async prepare(kernel: Kernel, overrides?: Record<string, number>): Promise<void> {
    const key = pipelineKey(kernel, overrides);
    if (this.#pipelines.has(key)) return;
    let compiling = this.#compiling.get(key);
    if (!compiling) {
      compiling = this.#compile(kernel, key, overrides).finally(() => this.#compiling.delete(key));
      this.#compiling.set(key, compiling);
    }
    await compiling;
  }

  /** As `prepare`, begun after the next read-back or when `compiling` is asked for: SwiftShader compiles one at a time. */
  prepareLater(kernels: Kernel[]): void {
    this.#later.push(...kernels.filter((kernel) => !this.#pipelines.has(pipelineKey(kernel, undefined))));
  }

  #prepareNow(): void {
    // One that does not compile is reported by who waits for `compiling`, or where it is used.
    for (const kernel of this.#later.splice(0)) this.prepare(kernel).catch(() => {});
  }

  /** To be compiled ahead, and not there yet. */
  isCompiling(kernel: Kernel): boolean {
    if (this.#later.includes(kernel)) return true;
    return this.#compiling.size > 0 && this.#compiling.has(pipelineKey(kernel, undefined));
  }

  /** Settles when all that is to be compiled ahead is there; undefined where that is so. Rejects when one does not compile. */
  get compiling(): Promise<unknown> | undefined {
    this.#prepareNow();
    return this.#compiling.size > 0 ? Promise.all(this.#compiling.values()) : undefined;
  }

  async #compile(kernel: Kernel, key: string, overrides?: Record<string, number>): Promise<void> {
    const layout = this.#layout(kernel);
    const pipeline = await this.device.createComputePipelineAsync(this.#descriptor(kernel, key, layout, overrides));
    if (!this.#pipelines.has(key)) this.counters.pipelines++;
    this.#pipelines.set(key, { pipeline, layout });
  }

  destroy(): void {
    this.device.destroy();
  }

  get #maxBindingBytes(): number {
    return bindingBytes(this.device.limits);
  }

  #throwIfFailed(): void {
    if (this.#failure) throw this.#failure;
  }

  #encode(): GPUCommandEncoder {
    return (this.#encoder ??= this.device.createCommandEncoder());
  }

  #endPass(): void {
    this.#pass?.end();
    this.#pass = undefined;
  }

  #submitPending(): void {
    if (!this.#encoder) return;
    this.#endPass();
    if (this.#paramsUsed > 0)
      this.device.queue.writeBuffer(this.#params, 0, this.#paramsCpu.buffer as ArrayBuffer, 0, this.#paramsUsed);
    this.device.queue.submit([this.#encoder.finish()]);
    this.#encoder = undefined;
    this.#paramsUsed = 0;
    this.counters.submits++;
  }

  /** Kernels that bind alike (the tiles of a product, say) share their layout, and so their bind groups. */
  #layout(kernel: Kernel): Layout {
    let layout = this.#layoutOf.get(kernel.id);
    if (layout) return layout;
    const size = Math.ceil(kernel.paramsBytes / 16) * 16;
    const entries: GPUBindGroupLayoutEntry[] = kernel.bindings.map(({ binding, access }) => ({
      binding,
      visibility: GPUShaderStage.COMPUTE,
      buffer: { type: access === 'read' ? 'read-only-storage' : 'storage' },
    }));
    entries.push({
      binding: kernel.paramsBinding,
      visibility: GPUShaderStage.COMPUTE,
      buffer: { type: 'uniform', hasDynamicOffset: true, minBindingSize: size },
    });
    const signature = JSON.stringify(entries);
    layout = this.#layouts.get(signature);
    layout ??= { id: this.#layouts.size, gpu: this.device.createBindGroupLayout({ label: kernel.name, entries }) };
    this.#layouts.set(signature, layout);
    this.#layoutOf.set(kernel.id, layout);
    return layout;
  }

  #descriptor(
    kernel: Kernel,
    key: string,
    layout: Layout,
    overrides: Record<string, number> = {},
  ): GPUComputePipelineDescriptor {
    const module = this.device.createShaderModule({ label: kernel.name, code: kernel.code });
    return {
      label: key,
      layout: this.device.createPipelineLayout({ label: kernel.name, bindGroupLayouts: [layout.gpu] }),
      compute: { module, constants: overrides },
    };
  }

  #pipeline(kernel: Kernel, overrides?: Record<string, number>) {
    const key = pipelineKey(kernel, overrides);
    let entry = this.#pipelines.get(key);
    if (entry) return entry;
    const layout = this.#layout(kernel);
    entry = { pipeline: this.device.createComputePipeline(this.#descriptor(kernel, key, layout, overrides)), layout };
    this.#pipelines.set(key, entry);
    this.counters.pipelines++;
    return entry;
  }

  #bindGroup(kernel: Kernel, layout: Layout, buffers: Record<string, View>): GPUBindGroup {
    let key = `${layout.id}`;
    for (const { name } of kernel.bindings) key += `:${buffers[name].id}`;
    let group = this.#bindGroups.get(key);
    if (group) return group;
    const entries: GPUBindGroupEntry[] = kernel.bindings.map(({ name, binding }) => {
      const { buffer, offset, bytes } = buffers[name];
      return { binding, resource: { buffer, offset, size: bytes } };
    });
    const size = Math.ceil(kernel.paramsBytes / 16) * 16;
    entries.push({ binding: kernel.paramsBinding, resource: { buffer: this.#params, size } });
    group = this.device.createBindGroup({ label: kernel.name, layout: layout.gpu, entries });
    this.#bindGroups.set(key, group);
    this.counters.bindGroups++;
    return group;
  }

  #writeParams(types: Readonly<Record<string, Scalar>>, values: Record<string, number>): number {
    const slot = 256;
    if (this.#paramsUsed + slot > PARAMS_BYTES) this.#submitPending();
    const offset = this.#paramsUsed;
    let at = offset;
    for (const name in types) {
      if (types[name] === 'f32') this.#paramsCpu.setFloat32(at, values[name], true);
      else this.#paramsCpu.setUint32(at, values[name], true);
      at += 4;
    }
    this.#paramsUsed += slot;
    return offset;
  }

  #takeStaging(bytes: number): { buffer: GPUBuffer; busy: boolean } {
    const free = this.#staging.find((s) => !s.busy && s.buffer.size >= bytes);
    if (free) {
      free.busy = true;
      return free;
    }
    const size = 2 ** Math.ceil(Math.log2(Math.max(bytes, 4096)));
    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
    const made = { buffer: this.device.createBuffer({ label: 'read-back', size, usage }), busy: true };
    this.counters.buffers++;
    this.counters.bytes += size;
    this.#staging.push(made);
    return made;
  }
}

function pipelineKey(kernel: Kernel, overrides: Record<string, number> | undefined): string {
  let key = `${kernel.name}#${kernel.id}`;
  if (overrides) for (const name in overrides) key += `,${name}=${overrides[name]}`;
  return key;
}
