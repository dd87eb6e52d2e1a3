/** Time that a test may judge by: another program on the machine does not lengthen it. */

/** Milliseconds of processor time that `work` takes in this process, its garbage collection included. */
export function processorMs(work: () => void): number {
  const before = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}
