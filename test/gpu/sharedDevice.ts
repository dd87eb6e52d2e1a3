/**
 * One GPUDevice for all test files of a process. Dawn keeps a pipeline as long as a reference exists, so pipelines compiled in one file are
 * reused in the next. Each `Gpu` gets what looks like a separate device: its buffers are freed when it is destroyed, its errors are
 * reported only to it if tests run one after another, and its counters count only its own work.
 */

let underneath: GPUDevice | undefined;
/** Pipelines are referenced here so that Dawn reuses them when the same text is compiled for another Gpu. */
const compiled = new Set<GPUComputePipeline>();
const leases = new Set<{ end: () => void }>();

let isShared: (() => boolean) | undefined;

/** Makes every adapter return leases of the same device, if `shared` returns true when a device is requested. */
export function shareDevice(shared: () => boolean): void {
  const isFirstCall = !isShared;
  isShared = shared;
  if (!isFirstCall) return;
  const requestDevice = GPUAdapter.prototype.requestDevice;
  GPUAdapter.prototype.requestDevice = async function (descriptor) {
    if (!isShared?.()) return requestDevice.call(this, descriptor);
    if (!underneath) {
      const device = (underneath = await requestDevice.call(this, descriptor));
      void device.lost.then(() => {
        underneath = undefined;
        compiled.clear();
      });
    }
    return lease(underneath);
  };
}

/** Frees the buffers that a test file did not free. */
export function endLeases(): void {
  for (const { end } of leases) end();
}

type Listener = Parameters<GPUDevice['addEventListener']>[1];

function lease(device: GPUDevice): GPUDevice {
  const made = new Set<GPUBuffer | GPUQuerySet>();
  const listeners: [string, Listener][] = [];
  let lose: (info: GPUDeviceLostInfo) => void;
  const lost = new Promise<GPUDeviceLostInfo>((resolve) => (lose = resolve));
  void device.lost.then((info) => lose(info));
  const end = () => {
    if (!leases.delete(ended)) return;
    for (const [type, listener] of listeners) device.removeEventListener(type, listener);
    for (const one of made) one.destroy();
    made.clear();
    lose({ reason: 'destroyed', message: 'Its Gpu was destroyed.' } as GPUDeviceLostInfo);
  };
  const ended = { end };
  leases.add(ended);
  const keep = <T extends GPUComputePipeline>(pipeline: T): T => (compiled.add(pipeline), pipeline);
  const track = <T extends GPUBuffer | GPUQuerySet>(one: T): T => (made.add(one), one);
  const own: Partial<Record<keyof GPUDevice, unknown>> = {
    lost,
    destroy: end,
    createBuffer: (descriptor: GPUBufferDescriptor) => track(device.createBuffer(descriptor)),
    createQuerySet: (descriptor: GPUQuerySetDescriptor) => track(device.createQuerySet(descriptor)),
    createComputePipeline: (descriptor: GPUComputePipelineDescriptor) => keep(device.createComputePipeline(descriptor)),
    createComputePipelineAsync: async (descriptor: GPUComputePipelineDescriptor) =>
      keep(await device.createComputePipelineAsync(descriptor)),
    addEventListener: (type: string, listener: Listener) => {
      listeners.push([type, listener]);
      device.addEventListener(type, listener);
    },
  };
  const bound = new Map<PropertyKey, unknown>();
  return new Proxy(device, {
    get(target, key) {
      if (key in own) return own[key as keyof GPUDevice];
      if (bound.has(key)) return bound.get(key);
      const value: unknown = Reflect.get(target, key, target);
      if (typeof value !== 'function') return value;
      const method: unknown = value.bind(target);
      bound.set(key, method);
      return method;
    },
  });
}
