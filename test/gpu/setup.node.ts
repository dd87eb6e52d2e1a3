/** Installs Dawn as navigator.gpu, so that the same test files run in Node and in a browser. */
import { afterAll } from 'vitest';
import { dawn, installDawn } from '../../src/cli/dawn.ts';
import { recordKernels, writeKernelsRun } from './kernelsRun.ts';

// Stored on globalThis, so that all test files share the object and it stays reachable: Dawn crashes if this object is collected.
const kept = globalThis as { dawnOfTests?: GPU | undefined };
if (!kept.dawnOfTests) {
  await installDawn();
  recordKernels();
}
kept.dawnOfTests ??= dawn;

afterAll(writeKernelsRun);
