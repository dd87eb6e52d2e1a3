/** Compiled kernels: pipelines and their layouts, created at first use or in advance. */

import type { GpuCounters } from './counters.ts';
import type { Kernel } from './kernel.ts';

export interface Layout {
  id: number;
  gpu: GPUBindGroupLayout;
}

interface Pipeline {
  pipeline: GPUComputePipeline;
  layout: Layout;
}

type Overrides = Record<string, number>;

/** Size in bytes of the uniform buffer that a kernel binds. */
export const uniformBytes = ({ paramsBytes }: Kernel): number => Math.ceil(paramsBytes / 16) * 16;

/**
 * Owns the pipelines of a device, by kernel and overrides, also those still being compiled. If a kernel does not compile, its error is
 * thrown to callers of `prepare` or `compiling`. If such a kernel is used without either, the device reports an uncaptured error.
 */
export class Pipelines {
  readonly #device: GPUDevice;
  readonly #counters: GpuCounters;
  readonly #pipelines = new Map<string, Pipeline>();
  readonly #layouts = new Map<string, Layout>();
  readonly #layoutOf = new Map<number, Layout>(); // by kernel id
  /** Kernels to compile later. */
  readonly #later: Kernel[] = [];
  /** Kernels that other kernels stand in for, each with the work that the others must still do before it is compiled. */
  readonly #onceWorth = new Map<Kernel, number>();
  /** Compilations in progress, by key. */
  readonly #compiling = new Map<string, Promise<void>>();
  /** Keys in `#compiling` that the getter `compiling` does not wait for. */
  readonly #unhurried = new Set<string>();

  constructor(device: GPUDevice, counters: GpuCounters) {
    this.#device = device;
    this.#counters = counters;
  }

  /** Returns the pipeline of a kernel. If it was not compiled in advance, compiles it now, on the critical path. */
  get(kernel: Kernel, overrides?: Overrides): Pipeline {
    const key = pipelineKey(kernel, overrides);
    let entry = this.#pipelines.get(key);
    if (entry) return entry;
    const layout = this.#layout(kernel);
    entry = { pipeline: this.#device.createComputePipeline(this.#descriptor(kernel, key, layout, overrides)), layout };
    this.#pipelines.set(key, entry);
    this.#onceWorth.delete(kernel);
    this.#counters.pipelines++;
    return entry;
  }

  /** Compiles a pipeline off the critical path. A dispatch before the compilation has ended compiles the pipeline a second time. */
  async prepare(kernel: Kernel, overrides?: Overrides): Promise<void> {
    const key = pipelineKey(kernel, overrides);
    if (this.#pipelines.has(key)) return;
    let compiling = this.#compiling.get(key);
    if (!compiling) {
      compiling = this.#compile(kernel, key, overrides).finally(() => this.#compiling.delete(key));
      this.#compiling.set(key, compiling);
    }
    await compiling;
  }

  /** Queues kernels that `prepareNow` starts to compile. */
  prepareLater(kernels: Kernel[]): void {
    this.#later.push(...kernels.filter((kernel) => !this.#pipelines.has(pipelineKey(kernel, undefined))));
  }

  /** Starts the compilations that `prepareLater` queued. */
  prepareNow(): void {
    for (const kernel of this.#later.splice(0)) this.prepare(kernel).catch(() => {});
  }

  /**
   * Queues kernels that other kernels stand in for. A kernel is compiled once the others have done `work` in its place. `compiling` does
   * not wait for it.
   */
  prepareOnceWorth(kernels: Kernel[], work: number): void {
    for (const kernel of kernels)
      if (!this.#pipelines.has(pipelineKey(kernel, undefined))) this.#onceWorth.set(kernel, work);
  }

  /** Counts `work` that another kernel did in place of this one. */
  standIn(kernel: Kernel, work: number): void {
    const left = this.#onceWorth.get(kernel);
    if (left === undefined) return;
    this.#onceWorth.set(kernel, left - work);
    if (left > work) return;
    this.#onceWorth.delete(kernel);
    const key = pipelineKey(kernel, undefined);
    this.#unhurried.add(key);
    this.prepare(kernel)
      .catch(() => {})
      .finally(() => this.#unhurried.delete(key));
  }

  /** True if a kernel is queued for compilation and not compiled yet. */
  isCompiling(kernel: Kernel): boolean {
    if (this.#later.includes(kernel) || this.#onceWorth.has(kernel)) return true;
    return this.#compiling.size > 0 && this.#compiling.has(pipelineKey(kernel, undefined));
  }

  /**
   * Settles when all queued kernels are compiled, except those that others stand in for. Undefined if none is waiting. Rejects if one does
   * not compile.
   */
  get compiling(): Promise<unknown> | undefined {
    this.prepareNow();
    if (this.#compiling.size === 0) return undefined;
    const awaited = [...this.#compiling].flatMap(([key, done]) => (this.#unhurried.has(key) ? [] : done));
    return awaited.length > 0 ? Promise.all(awaited) : undefined;
  }

  async #compile(kernel: Kernel, key: string, overrides?: Overrides): Promise<void> {
    const layout = this.#layout(kernel);
    const pipeline = await this.#device.createComputePipelineAsync(this.#descriptor(kernel, key, layout, overrides));
    if (!this.#pipelines.has(key)) this.#counters.pipelines++;
    this.#pipelines.set(key, { pipeline, layout });
    this.#onceWorth.delete(kernel);
  }

  /** Kernels with the same bindings (such as the tiles of a product) share their layout, and therefore their bind groups. */
  #layout(kernel: Kernel): Layout {
    let layout = this.#layoutOf.get(kernel.id);
    if (layout) return layout;
    const entries: GPUBindGroupLayoutEntry[] = kernel.bindings.map(({ binding, access }) => ({
      binding,
      visibility: GPUShaderStage.COMPUTE,
      buffer: { type: access === 'read' ? 'read-only-storage' : 'storage' },
    }));
    entries.push({
      binding: kernel.paramsBinding,
      visibility: GPUShaderStage.COMPUTE,
      buffer: { type: 'uniform', hasDynamicOffset: true, minBindingSize: uniformBytes(kernel) },
    });
    const signature = JSON.stringify(entries);
    layout = this.#layouts.get(signature);
    layout ??= { id: this.#layouts.size, gpu: this.#device.createBindGroupLayout({ label: kernel.name, entries }) };
    this.#layouts.set(signature, layout);
    this.#layoutOf.set(kernel.id, layout);
    return layout;
  }

  #descriptor(kernel: Kernel, key: string, layout: Layout, overrides: Overrides = {}): GPUComputePipelineDescriptor {
    const module = this.#device.createShaderModule({ label: kernel.name, code: kernel.code });
    return {
      label: key,
      layout: this.#device.createPipelineLayout({ label: kernel.name, bindGroupLayouts: [layout.gpu] }),
      compute: { module, constants: overrides },
    };
  }
}

function pipelineKey(kernel: Kernel, overrides: Overrides | undefined): string {
  let key = `${kernel.name}#${kernel.id}`;
  if (overrides) for (const name in overrides) key += `,${name}=${overrides[name]}`;
  return key;
}
