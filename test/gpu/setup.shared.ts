/** All test files of a process share one GPUDevice, those aside that test what becomes of a device. */
import { afterAll, expect } from 'vitest';
import { endLeases, shareDevice } from './sharedDevice.ts';

/** They lose their device, or make it report errors to whoever listens. */
const OWN_DEVICE = ['device.test.ts'];
/** In the name of a test that is about several devices. */
const OWN_DEVICES = 'devices of their own';

shareDevice(() => {
  const { testPath, currentTestName } = expect.getState();
  return !OWN_DEVICE.some((name) => testPath?.endsWith(`/${name}`)) && !currentTestName?.includes(OWN_DEVICES);
});
afterAll(endLeases);
