/**
 * Owner of the GPUDevice: buffers, pipelines, cached bind groups, dispatch, read-back, counters.
 *
 * All work is recorded into one encoder and one compute pass until a submit is needed (for a read-back, a host write,
 * or a full params ring). A steady-state step creates nothing: pipelines are cached by kernel and overrides, bind
 * groups by layout and views, params are written to a ring that is uploaded once per submit, and staging buffers are
 * reused.
 */

import { type AdapterSummary, bindingBytes, openAdapter } from './adapter.ts';
import { newCounters } from './counters.ts';
import { DeviceLostError, GpuError, OutOfMemoryError } from '../errors.ts';
import { forHalves } from './halves.ts';
import type { Kernel } from './kernel.ts';
import { ParamsRing } from './paramsRing.ts';
import { PassTimer, timesByLabel } from './passTimer.ts';
import { type Layout, Pipelines, uniformBytes } from './pipelines.ts';
import { Staging } from './staging.ts';
import { asHalves, newView, USAGE, type View } from './view.ts';

export type { AdapterSummary } from './adapter.ts';
export type { GpuCounters } from './counters.ts';
export type { View } from './view.ts';

/** After the device has rejected a call, milliseconds to wait for it to report its loss. */
const REASON_MS = 200;

/** A byte range of a view. Offset and length are multiples of 4. */
interface Range {
  view: View;
  offset: number;
  bytes: number;
}

interface GpuOptions {
  /** Maximum number of bytes of all buffers. The size of VRAM itself cannot be queried. */
  maxBytes?: number;
  /** Maximum size of a buffer of weights in bytes. More weights are split into several buffers. Default: the device's binding limit. */
  maxArenaBytes?: number;
}

/**
 * Owns a GPUDevice, its buffers and its recorded work; sizes are in bytes. Allocating throws RangeError for a buffer that the device cannot
 * bind, and OutOfMemoryError if all buffers together would exceed `maxBytes`. An error of the device is thrown by the next call and all
 * later calls (GpuError, OutOfMemoryError, DeviceLostError). The buffers then have undefined contents, so a new device must be used.
 */
export class Gpu {
  readonly device: GPUDevice;
  readonly adapter: AdapterSummary;
  readonly counters = newCounters();
  /** Maximum size of a buffer for weights, gradients or moments in bytes; a multiple of 256. */
  readonly maxArenaBytes: number;
  /** Maximum number of bytes of all buffers. */
  maxBytes: number;
  readonly #pipelines: Pipelines;
  readonly #staging: Staging;
  readonly #bindGroups = new Map<string, GPUBindGroup>();
  readonly #params: ParamsRing;
  #timer: PassTimer | undefined;
  #encoder: GPUCommandEncoder | undefined;
  #pass: GPUComputePassEncoder | undefined;
  #failure: Error | undefined;

  constructor(device: GPUDevice, adapter: AdapterSummary, options: GpuOptions = {}) {
    this.device = device;
    this.adapter = adapter;
    this.maxBytes = options.maxBytes ?? Infinity;
    this.maxArenaBytes = Math.min(options.maxArenaBytes ?? Infinity, this.#maxBindingBytes);
    device.addEventListener('uncapturederror', (event) => {
      event.preventDefault(); // it is thrown, so the console need not report it too
      this.#failure ??=
        event.error instanceof GPUOutOfMemoryError
          ? new OutOfMemoryError(event.error.message)
          : new GpuError(event.error.message);
    });
    void device.lost.then((info) => {
      this.#failure = new DeviceLostError(info.reason, info.message);
    });
    this.#pipelines = new Pipelines(device, this.counters);
    this.#staging = new Staging(device, this.counters);
    this.#params = new ParamsRing(device);
  }

  /** Opens a device with all features of the adapter. Throws NoAdapterError. */
  static async create(options: GpuOptions = {}): Promise<Gpu> {
    const { device, summary } = await openAdapter();
    return new Gpu(device, summary, options);
  }

  /** Allocates a buffer: of `data` zero bytes if `data` is a number, otherwise with a copy of `data`. */
  buffer(label: string, data: number | Float32Array | Uint32Array): View {
    const bytes = Math.max(4, Math.ceil((typeof data === 'number' ? data : data.byteLength) / 4) * 4);
    const limit = this.#maxBindingBytes;
    if (bytes > limit)
      throw new RangeError(
        `Buffer "${label}" needs ${bytes} bytes but this device binds at most ${limit}. Split the tensor or shrink the batch.`,
      );
    this.#expectRoom(label, bytes);
    this.#throwIfFailed();
    const buffer = this.device.createBuffer({
      label,
      size: bytes,
      usage: USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST,
    });
    this.counters.buffers++;
    this.counters.bytes += bytes;
    if (typeof data !== 'number') this.device.queue.writeBuffer(buffer, 0, data as Float32Array<ArrayBuffer>);
    return newView(buffer);
  }

  /** Allocates n zeroed 16-bit floats. Needs shader-f16. */
  halves(label: string, n: number): View {
    return asHalves(this.buffer(label, n * 2));
  }

  /** Returns a view of a part of a view, such as a tensor in an arena. Offsets must be multiples of 256 bytes. */
  slice(view: View, offset: number, bytes: number): View {
    if (offset % 256 !== 0 || offset + bytes > view.bytes)
      throw new RangeError(
        `A slice of "${view.buffer.label}" at ${offset} of ${bytes} bytes must start at a multiple of 256 and end by ${view.bytes}.`,
      );
    const part = newView(view.buffer, view.offset + offset, bytes);
    return view.half ? asHalves(part) : part;
  }

  /** Frees the buffer of a view, and drops all cached bind groups, because they can hold it. */
  free(view: View): void {
    this.#submitPending();
    this.#bindGroups.clear();
    this.counters.buffers--;
    this.counters.bytes -= view.buffer.size;
    view.buffer.destroy();
  }

  /** Writes data from the host to the device. Work that was recorded earlier still reads the old contents. */
  write(view: View, data: Float32Array | Uint32Array | Int32Array, elementOffset = 0): void {
    if (elementOffset * 4 + data.byteLength > view.bytes)
      throw new RangeError(
        `Writing ${data.byteLength} bytes at ${elementOffset * 4} into "${view.buffer.label}", which holds ${view.bytes}.`,
      );
    this.#throwIfFailed();
    this.#submitPending();
    this.device.queue.writeBuffer(view.buffer, view.offset + elementOffset * 4, data as Float32Array<ArrayBuffer>);
  }

  /** Stores data in host memory. `copy` can copy the returned view to the device, and `freeUpload` frees it. */
  upload(label: string, data: ArrayBuffer): View {
    this.#expectRoom(label, data.byteLength);
    this.#throwIfFailed();
    return newView(this.#staging.upload(label, data));
  }

  /** Frees an upload. Copies recorded from it still run. */
  freeUpload({ buffer }: View): void {
    this.#submitPending();
    this.#staging.free(buffer);
  }

  /** Records a copy from device to device, in order with other work. */
  copy(from: View, to: View, bytes = Math.min(from.bytes, to.bytes), fromOffset = 0, toOffset = 0): void {
    this.#endPass();
    this.#encode().copyBufferToBuffer(from.buffer, from.offset + fromOffset, to.buffer, to.offset + toOffset, bytes);
    this.counters.copiedBytes += bytes;
  }

  /** Records setting a view to zero, in order with other work. */
  clear(view: View): void {
    this.#endPass();
    this.#encode().clearBuffer(view.buffer, view.offset, view.bytes);
  }

  /**
   * Records `groups` workgroups of a kernel, folded over x and y. Uses the kernel's variant for halves if a bound view has halves. The work
   * runs at the next flush or read, in the recorded order.
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
    const kernel = forHalves(plain, buffers);
    const { pipeline, layout } = this.#pipelines.get(kernel, overrides);
    if (this.#params.isFull) this.#submitPending();
    const offset = this.#params.push(kernel, params);
    const bindGroup = this.#bindGroup(kernel, layout, buffers);
    this.#pass ??= this.#encode().beginComputePass(this.#timer?.next());
    this.#pass.setPipeline(pipeline);
    this.#pass.setBindGroup(0, bindGroup, [offset]);
    const max = 65535; // the limit maxComputeWorkgroupsPerDimension of every device
    // All runs of a kernel with the same number of workgroups must fold it in the same way. Kernels compute their index as wg.y * grid.x +
    // wg.x.
    this.#pass.dispatchWorkgroups(Math.min(groups, max), Math.ceil(groups / max));
    this.counters.dispatches++;
  }

  /** Submits all recorded work to the GPU, without waiting for it. */
  flush(): void {
    this.#throwIfFailed();
    this.#submitPending();
  }

  /** Submits recorded work, waits for it, and copies views to the host. This is slow: call it once per step, not once per layer. */
  async read(...views: View[]): Promise<ArrayBuffer[]> {
    return this.readRanges(views.map((view) => ({ view, offset: 0, bytes: view.bytes })));
  }

  /** Like `read`, for ranges of views. */
  async readRanges(parts: Range[]): Promise<ArrayBuffer[]> {
    return this.#readRanges(
      parts,
      parts.map(({ bytes }) => bytes),
    );
  }

  /** Like `readRanges`, but returns the bytes of all ranges in one buffer. */
  async readTogether(parts: Range[]): Promise<ArrayBuffer> {
    const [all] = await this.#readRanges(parts, [parts.reduce((sum, { bytes }) => sum + bytes, 0)]);
    return all;
  }

  /** @param pieces size of each returned ArrayBuffer in bytes */
  async #readRanges(parts: Range[], pieces: number[]): Promise<ArrayBuffer[]> {
    this.#throwIfFailed();
    const total = parts.reduce((sum, p) => sum + p.bytes, 0);
    if (total === 0) return pieces.map(() => new ArrayBuffer(0));
    const staging = this.#staging.take(total);
    try {
      this.#endPass();
      let at = 0;
      for (const { view, offset, bytes } of parts) {
        if (bytes > 0) this.#encode().copyBufferToBuffer(view.buffer, view.offset + offset, staging.buffer, at, bytes);
        at += bytes;
      }
      this.#submitPending();
      const data = await this.#staging.map(staging, pieces).catch(async (error: unknown) => {
        const reason = await this.#reason(error);
        throw (this.#failure ??= new GpuError(`A read-back failed: ${String(reason)}`));
      });
      this.#throwIfFailed();
      return data;
    } finally {
      this.#staging.release(staging);
      this.#pipelines.prepareNow();
    }
  }

  /** Starts timing compute passes under the labels of `timeAs`. Returns false if the adapter has no timestamps. */
  startTimer(): boolean {
    if (!this.device.features.has('timestamp-query')) return false;
    this.#timer ??= new PassTimer(this.device);
    return true;
  }

  stopTimer(): void {
    this.#endPass();
    this.#timer?.destroy();
    this.#timer = undefined;
  }

  /** Adds the time of later passes to `label`; undefined = later passes are not timed. Has no effect without `startTimer`. */
  timeAs(label: string | undefined): void {
    if (!this.#timer || this.#timer.label === label) return;
    this.#endPass();
    this.#timer.label = label;
  }

  /** Like `read`, but also returns the GPU milliseconds of labelled passes since the last call; undefined without `startTimer`. */
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

  /** Waits until all submitted work has run. */
  async idle(): Promise<void> {
    this.flush();
    await this.#orReason(this.device.queue.onSubmittedWorkDone());
    this.#throwIfFailed();
  }

  /** Compiles a kernel's pipeline before its first use, off the critical path. */
  async prepare(kernel: Kernel, overrides?: Record<string, number>): Promise<void> {
    await this.#orReason(this.#pipelines.prepare(kernel, overrides));
  }

  /**
   * Like `prepare`, but compiles after the next read-back or when `compiling` is read, because SwiftShader compiles one kernel at a time.
   */
  prepareLater(kernels: Kernel[]): void {
    this.#pipelines.prepareLater(kernels);
  }

  /**
   * Like `prepareLater`, but compiles a kernel only after other kernels have done `work` in its place, as `standIn` counts it. `compiling`
   * does not wait for these kernels.
   */
  prepareOnceWorth(kernels: Kernel[], work: number): void {
    this.#pipelines.prepareOnceWorth(kernels, work);
  }

  /** Counts `work` that another kernel did in place of `kernel`; see `prepareOnceWorth`. */
  standIn(kernel: Kernel, work: number): void {
    this.#pipelines.standIn(kernel, work);
  }

  /** True if a kernel is queued for compilation and not compiled yet. */
  isCompiling(kernel: Kernel): boolean {
    return this.#pipelines.isCompiling(kernel);
  }

  /**
   * Settles when all kernels of `prepare` and `prepareLater` are compiled. Undefined if none is waiting. Rejects if one does not compile.
   */
  get compiling(): Promise<unknown> | undefined {
    return this.#pipelines.compiling && this.#orReason(this.#pipelines.compiling);
  }

  destroy(): void {
    this.device.destroy();
  }

  get #maxBindingBytes(): number {
    return bindingBytes(this.device.limits);
  }

  #expectRoom(label: string, bytes: number): void {
    if (this.counters.bytes + bytes <= this.maxBytes) return;
    throw new OutOfMemoryError(
      `Buffer "${label}" needs ${bytes} bytes but ${this.counters.bytes} of the ${this.maxBytes} bytes allowed are in use. Lower actor.ppoMaxTokenLenPerGpu or rollout.maxNumSeqs.`,
    );
  }

  #throwIfFailed(): void {
    if (this.#failure) throw this.#failure;
  }

  /** Returns the result of the promise `asked`. If the promise rejects, rejects with the device's own error instead. */
  async #orReason<T>(asked: Promise<T>): Promise<T> {
    return asked.catch(async (error: unknown) => {
      throw await this.#reason(error);
    });
  }

  /**
   * Returns the device's own error for a rejected call. The device can report its loss a moment after the rejection.
   */
  async #reason(error: unknown): Promise<unknown> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const soon = new Promise((resolve) => (timer = setTimeout(resolve, REASON_MS)));
    if (!this.#failure) await Promise.race([this.device.lost, soon]);
    clearTimeout(timer);
    return this.#failure ?? error;
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
    this.#params.upload();
    this.device.queue.submit([this.#encoder.finish()]);
    this.#encoder = undefined;
    this.counters.submits++;
  }

  #bindGroup(kernel: Kernel, layout: Layout, buffers: Readonly<Record<string, View>>): GPUBindGroup {
    let key = `${layout.id}`;
    for (const { name } of kernel.bindings) key += `:${buffers[name].id}`;
    let group = this.#bindGroups.get(key);
    if (group) return group;
    const entries: GPUBindGroupEntry[] = kernel.bindings.map(({ name, binding }) => {
      const { buffer, offset, bytes } = buffers[name];
      return { binding, resource: { buffer, offset, size: bytes } };
    });
    entries.push({
      binding: kernel.paramsBinding,
      resource: { buffer: this.#params.buffer, size: uniformBytes(kernel) },
    });
    group = this.device.createBindGroup({ label: kernel.name, layout: layout.gpu, entries });
    this.#bindGroups.set(key, group);
    this.counters.bindGroups++;
    return group;
  }
}
