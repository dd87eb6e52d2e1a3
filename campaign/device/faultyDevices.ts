/**
 * Devices that fail at a chosen operation. Each is a lease of one real device, so that all share its compiled kernels. The behaviour of a
 * lost device is imitated: reads reject, submits and writes do nothing, `lost` resolves a little later. Errors are reported only to the
 * lease that caused them. Node only, because the methods of an adapter are replaced.
 */

/** Kind of the fault. 'lost' can happen at any operation, the others only at operations of their kind. */
export type FaultKind = 'lost' | 'out of memory' | 'validation' | 'map';

export interface Fault {
  kind: FaultKind;
  /** Number of the operation of that kind, counted from now; 1 = the next. */
  at: number;
  /** Milliseconds between the loss of the device and the moment at which its `lost` promise resolves. */
  lateMs?: number;
}

type Operation = 'createBuffer' | 'submit' | 'mapAsync' | 'other';

const STRIKES: Record<FaultKind, readonly Operation[]> = {
  lost: ['createBuffer', 'submit', 'mapAsync', 'other'],
  'out of memory': ['createBuffer'],
  validation: ['submit'],
  map: ['mapAsync'],
};

export class FaultyDevices {
  /** Number of operations of each kind since `arm`. */
  counts: Record<FaultKind, number> = { lost: 0, 'out of memory': 0, validation: 0, map: 0 };
  /** Number of faults that have happened. */
  struck = 0;
  #faults: Fault[] = [];
  #real: Promise<GPUDevice> | undefined;
  readonly #leases = new WeakMap<GPUBuffer, Lease>();
  readonly #restore: () => void;

  /** Makes every adapter create faulty devices, until `uninstall`. */
  constructor() {
    const { requestDevice } = GPUAdapter.prototype;
    const { mapAsync } = GPUBuffer.prototype;
    const [owner, leases] = [this, this.#leases] as const;
    GPUAdapter.prototype.requestDevice = async function (descriptor) {
      return new Lease(await (owner.#real ??= requestDevice.call(this, descriptor)), owner).device;
    };
    GPUBuffer.prototype.mapAsync = function (...args) {
      const lease = leases.get(this);
      return lease ? lease.map(() => mapAsync.apply(this, args)) : mapAsync.apply(this, args);
    };
    this.#restore = () =>
      Object.assign(GPUAdapter.prototype, { requestDevice }) && Object.assign(GPUBuffer.prototype, { mapAsync });
  }

  uninstall(): void {
    this.#restore();
  }

  /** Resolves when all errors of earlier submits were reported. A later lease would otherwise receive them. */
  async settled(): Promise<void> {
    await (await this.#real)?.queue.onSubmittedWorkDone();
    await new Promise((resolve) => setTimeout(resolve, 5));
  }

  /** Sets the next faults, each counted from the previous one; none = no faults. */
  arm(...faults: Fault[]): void {
    this.#faults = faults;
    this.struck = 0;
    this.#countAnew();
  }

  #countAnew(): void {
    this.counts = { lost: 0, 'out of memory': 0, validation: 0, map: 0 };
  }

  own(buffer: GPUBuffer, lease: Lease): void {
    this.#leases.set(buffer, lease);
  }

  /** Counts an operation. Returns the fault if it affects this operation. */
  next(operation: Operation): Fault | undefined {
    const kinds = Object.keys(STRIKES) as FaultKind[];
    for (const kind of kinds) if (STRIKES[kind].includes(operation)) this.counts[kind]++;
    const [fault] = this.#faults;
    if (!fault || !STRIKES[fault.kind].includes(operation) || this.counts[fault.kind] < fault.at) return undefined;
    this.#faults.shift();
    this.struck++;
    this.#countAnew();
    return fault;
  }
}

type Listener = (event: { error: GPUError; preventDefault(): void }) => void;

class Lease {
  readonly device: GPUDevice;
  readonly #real: GPUDevice;
  readonly #owner: FaultyDevices;
  readonly #buffers = new Set<GPUBuffer>();
  readonly #listeners = new Set<Listener>();
  readonly #reject = new Set<(error: unknown) => void>();
  #isLost = false;
  #sayLost: (info: GPUDeviceLostInfo) => void = () => {};

  constructor(real: GPUDevice, owner: FaultyDevices) {
    this.#real = real;
    this.#owner = owner;
    const lost = new Promise<GPUDeviceLostInfo>((resolve) => (this.#sayLost = resolve));
    const { queue } = real;
    const ownQueue: Record<string, unknown> = {
      submit: (buffers: GPUCommandBuffer[]) => this.#submit(() => queue.submit(buffers)),
      writeBuffer: (...args: Parameters<GPUQueue['writeBuffer']>) => this.#do(() => queue.writeBuffer(...args)),
      onSubmittedWorkDone: () => this.#asked(() => queue.onSubmittedWorkDone()),
    };
    const own: Record<string, unknown> = {
      lost,
      queue: over(queue, ownQueue),
      destroy: () => this.#lose('destroyed', 0),
      createBuffer: (descriptor: GPUBufferDescriptor) => this.#createBuffer(descriptor),
      createComputePipeline: (descriptor: GPUComputePipelineDescriptor) => {
        this.#do(() => {});
        return real.createComputePipeline(descriptor);
      },
      createComputePipelineAsync: (descriptor: GPUComputePipelineDescriptor) =>
        this.#asked(() => real.createComputePipelineAsync(descriptor)),
      addEventListener: (_: string, listener: Listener) => this.#listen(listener),
    };
    this.device = over(real, own);
  }

  /** Maps a buffer. Rejects if the device is lost before the buffer is mapped. */
  async map(work: () => Promise<undefined>): Promise<undefined> {
    const fault = this.#strike('mapAsync');
    if (fault?.kind === 'map') throw new DOMException('The map was refused.', 'OperationError');
    const aborted = new DOMException('A valid external Instance reference no longer exists.', 'AbortError');
    if (this.#isLost) throw aborted;
    let leave = (_: unknown): void => {};
    const loss = new Promise<never>((_, reject) => this.#reject.add((leave = reject)));
    return Promise.race([work(), loss]).finally(() => this.#reject.delete(leave));
  }

  /** Triggers a fault when its operation is reached. A lost device fails from here on, at every kind of operation. */
  #strike(operation: Operation): Fault | undefined {
    if (this.#isLost) return undefined;
    const fault = this.#owner.next(operation);
    if (fault?.kind === 'lost') this.#lose('unknown', fault.lateMs ?? 0);
    return fault;
  }

  #lose(reason: 'unknown' | 'destroyed', lateMs: number): void {
    if (this.#isLost) return;
    this.#isLost = true;
    for (const listener of this.#listeners) this.#real.removeEventListener('uncapturederror', listener as never);
    for (const buffer of this.#buffers) buffer.destroy();
    this.#buffers.clear();
    for (const reject of this.#reject) reject(new DOMException('The device is lost.', 'AbortError'));
    const say = () => this.#sayLost({ reason, message: 'A fault of the campaign.' } as GPUDeviceLostInfo);
    if (lateMs > 0) setTimeout(say, lateMs);
    else say();
  }

  #do(work: () => void): void {
    this.#strike('other');
    if (!this.#isLost) work();
  }

  /** Counts an asynchronous request and runs it, also after the loss: a lost device resolves such requests as well. */
  async #asked<T>(work: () => Promise<T>): Promise<T> {
    this.#strike('other');
    return work();
  }

  #submit(work: () => void): void {
    const fault = this.#strike('submit');
    if (this.#isLost) return;
    if (fault?.kind !== 'validation') return work();
    // An invalid command is not run. Its error is reported in the order of the queue.
    this.#real.queue.submit([invalid(this.#real)]);
  }

  #createBuffer(descriptor: GPUBufferDescriptor): GPUBuffer {
    const fault = this.#strike('createBuffer');
    const buffer = this.#real.createBuffer(descriptor);
    this.#owner.own(buffer, this);
    const fails = fault?.kind === 'out of memory';
    if (this.#isLost || fails) buffer.destroy();
    else this.#buffers.add(buffer);
    if (fails) this.#tell(new GPUOutOfMemoryError(`Out of memory for "${descriptor.label}".`));
    return buffer;
  }

  #listen(listener: Listener): void {
    this.#listeners.add(listener);
    this.#real.addEventListener('uncapturederror', listener as never);
  }

  #tell(error: GPUError): void {
    for (const listener of this.#listeners) listener({ error, preventDefault: () => {} });
  }
}

/** Returns a command buffer that cannot be submitted, because it copies past the end. */
function invalid(device: GPUDevice): GPUCommandBuffer {
  const { COPY_SRC, COPY_DST } = GPUBufferUsage;
  const buffer = device.createBuffer({ label: 'fault', size: 16, usage: COPY_SRC | COPY_DST });
  const encoder = device.createCommandEncoder({ label: 'fault' });
  encoder.copyBufferToBuffer(buffer, 0, buffer, 1024, 8);
  return encoder.finish();
}

/** Returns `real` with some of its members replaced. */
function over<T extends object>(real: T, own: Record<string, unknown>): T {
  const bound = new Map<PropertyKey, unknown>();
  return new Proxy(real, {
    get(target, key) {
      if (typeof key === 'string' && Object.hasOwn(own, key)) return own[key];
      if (bound.has(key)) return bound.get(key);
      const value: unknown = Reflect.get(target, key, target);
      if (typeof value !== 'function') return value;
      const method: unknown = value.bind(target);
      bound.set(key, method);
      return method;
    },
  });
}
