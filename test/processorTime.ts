/** Measures processor time, which tests can check because other programs on the machine do not add to it. */

/** Returns the milliseconds of processor time that this process, including garbage collection, spends on `work`. */
export function processorMs(work: () => void): number {
  const before = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}
