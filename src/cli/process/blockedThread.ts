/** Reports code that blocks the main thread. Signal handlers cannot run there meanwhile, so Ctrl-C has no effect. */

import { Worker } from 'node:worker_threads';

/** Seconds without a turn of the event loop after which a line is printed. */
const BLOCKED_S = 30;

let isWatched = false;

/** Starts a thread that watches this one, which a user's code can block. Later calls do nothing. */
export function watchMainThread(blockedS = BLOCKED_S): void {
  if (isWatched) return;
  isWatched = true;
  const turns = new Int32Array(new SharedArrayBuffer(4));
  setInterval(() => Atomics.add(turns, 0, 1), 1000).unref();
  const said =
    `Code of your task, reward, tool or module has not returned for ${blockedS} s, and nothing else can run meanwhile, Ctrl-C neither. ` +
    `If it never returns, end this process with Ctrl-\\ or kill -9 ${process.pid}, correct the code, and resume from the last checkpoint.\n`;
  new Worker(`(${watch.toString()})(require)`, { eval: true, workerData: { turns, blockedS, said } }).unref();
}

/** Runs in the other thread, by its source text. */
function watch(require: NodeJS.Require): void {
  const workers = require('node:worker_threads') as typeof import('node:worker_threads');
  const { writeSync } = require('node:fs') as typeof import('node:fs');
  const { turns, blockedS, said } = workers.workerData as { turns: Int32Array; blockedS: number; said: string };
  let [last, quietS] = [-1, 0];
  // Seconds are counted one by one, because a process that was suspended by Ctrl-Z is not blocked.
  const timer = setInterval(() => {
    const now = Atomics.load(turns, 0);
    quietS = now === last ? quietS + 1 : 0;
    last = now;
    if (quietS < blockedS) return;
    clearInterval(timer);
    writeSync(2, said);
  }, 1000);
}
