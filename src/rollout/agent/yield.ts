/**
 * Hundreds of samples start in the same instant, and encoding their prompts takes longer than a page may be kept from
 * drawing. They queue here, and the thread yields to other tasks every MAX_BUSY_MS.
 */

const MAX_BUSY_MS = 15;

let line: Promise<void> = Promise.resolve();
let startedAt = -Infinity;

/** Resolves in the order of the calls, in turns of at most about `MAX_BUSY_MS` of work. */
export function takeTurn(): Promise<void> {
  line = line.then(async () => {
    if (Math.abs(performance.now() - startedAt) < MAX_BUSY_MS) return; // a test may have set the clock back
    await nextTask();
    startedAt = performance.now();
  });
  return line;
}

/** Resolves once the samples that were started before it have asked for their first tokens, where nothing of theirs takes longer. */
export async function samplesStarted(): Promise<void> {
  await takeTurn();
  await nextTask();
}

/** Yields to other tasks, by a message rather than a timer: browsers slow down the timers of background tabs. */
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
