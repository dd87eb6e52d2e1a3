/** Lets all test files of a process share one GPUDevice, except those that test devices themselves. */
import { afterAll, expect } from 'vitest';
import { endLeases, shareDevice } from './sharedDevice.ts';

/** Test files with a device of their own, because they lose it or cause errors that every listener receives. */
const OWN_DEVICE = ['device.test.ts'];
/** Text in the name of tests that need several separate devices. */
const OWN_DEVICES = 'devices of their own';

shareDevice(() => {
  const { testPath, currentTestName } = expect.getState();
  return !OWN_DEVICE.some((name) => testPath?.endsWith(`/${name}`)) && !currentTestName?.includes(OWN_DEVICES);
});
afterAll(endLeases);
