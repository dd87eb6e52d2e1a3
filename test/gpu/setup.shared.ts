/** All test files of a process share one GPUDevice, those aside that test what becomes of a device. */
import { afterAll, expect } from 'vitest';
import { endLeases, shareDevice } from './sharedDevice.ts';

/** They lose their device, or make it report errors to whoever listens. */
const OWN_DEVICE = ['device.test.ts'];

shareDevice(() => !OWN_DEVICE.some((name) => expect.getState().testPath?.endsWith(`/${name}`)));
afterAll(endLeases);
