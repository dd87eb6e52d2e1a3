/** Lets all test files of a process share one GPUDevice, except those that test devices themselves. */
import { afterAll, expect } from 'vitest';
import { endLeases, shareDevice } from './sharedDevice.ts';

/** Files that lose their device, or make it report errors to every listener. */
const OWN_DEVICE = ['device.test.ts'];
/** Part of the name of tests that need several devices. */
const OWN_DEVICES = 'devices of their own';

shareDevice(() => {
  const { testPath, currentTestName } = expect.getState();
  return !OWN_DEVICE.some((name) => testPath?.endsWith(`/${name}`)) && !currentTestName?.includes(OWN_DEVICES);
});
afterAll(endLeases);
