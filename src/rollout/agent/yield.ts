/**
 * Queue of samples that start. Hundreds of samples start at the same time, and encoding all their prompts would block a page from drawing.
 * Therefore they wait here, and the thread yields to other tasks every MAX_BUSY_MS.
 */

const MAX_BUSY_MS = 15;

let line: Promise<void> = Promise.resolve();
let startedAt = -Infinity;

/**
 * Resolves when the caller can start its work. Callers continue in the order of their calls, in slices of about `MAX_BUSY_MS`, between
 * which other tasks run.
 */
export function takeTurn(): Promise<void> {
  line = line.then(async () => {
    if (Math.abs(performance.now() - startedAt) < MAX_BUSY_MS) return; // a test can have set the clock back
    await nextTask();
    startedAt = performance.now();
  });
  return line;
}

/**
 * Resolves once all samples that were started before this call have requested their first tokens. Does not wait for samples that wait for
 * something slower, such as a tool.
 */
export async function samplesStarted(): Promise<void> {
  await takeTurn();
  await nextTask();
}

/** Yields to other tasks. Uses a message instead of a timer, because browsers delay the timers of background tabs. */
export function nextTask(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}
