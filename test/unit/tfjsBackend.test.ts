/** Tests which device uses tfjs, with fake packages of tfjs. */
import { expect, test, vi } from 'vitest';
import { loadTfjs } from '../../src/extensions/tfjs/backend.ts';
import type { Gpu } from '../../src/gpu/device.ts';
import { stub } from '../stub.ts';

const removed: string[] = [];
let starts = true;
vi.mock('@tensorflow/tfjs', () => ({
  findBackendFactory: () => undefined,
  removeBackend: (name: string) => removed.push(name),
  env: () => ({ set: () => {} }),
  registerBackend: () => {},
  setBackend: () => Promise.resolve(starts),
}));
vi.mock('@tensorflow/tfjs-backend-webgpu', () => ({ WebGPUBackend: class {} }));

function fakeGpu(): { gpu: Gpu; lose: () => void } {
  let lose = () => {};
  const lost = new Promise<GPUDeviceLostInfo>((resolve) => {
    lose = () => resolve(stub<GPUDeviceLostInfo>({ reason: 'unknown' }));
  });
  return { gpu: stub<Gpu>({ device: stub<GPUDevice>({ lost }) }), lose };
}

test('tfjs serves the next device when its own is lost, is destroyed, or did not start', async () => {
  const [first, second, third, fourth] = [fakeGpu(), fakeGpu(), fakeGpu(), fakeGpu()];
  const runtime = await loadTfjs(first.gpu);
  expect(await loadTfjs(first.gpu)).toBe(runtime);
  expect(() => loadTfjs(second.gpu)).toThrow('tfjs serves one GPU device at a time and another one has it');
  first.lose();
  await Promise.resolve();
  const next = await loadTfjs(second.gpu);
  runtime.destroy(); // late: it must not remove the backend of the second device
  expect(removed).toEqual([]);
  next.destroy();
  expect(removed).toEqual(['webgpu']);
  starts = false;
  await expect(loadTfjs(third.gpu)).rejects.toThrow('could not start its WebGPU backend');
  starts = true;
  await expect(loadTfjs(fourth.gpu)).resolves.toBeDefined();
});
