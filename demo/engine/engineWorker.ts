/** A worker for the engine whose end is heard of at whatever moment it comes. */

import { WorkerDiedError } from '../../src/workers/remoteEngine.ts';

interface EngineWorker {
  worker: Worker;
  /** Rejects when the worker cannot be started or dies. */
  died: Promise<never>;
}

export function startEngineWorker(): EngineWorker {
  const worker = new Worker(new URL('./engine.worker.ts', import.meta.url), { type: 'module' });
  const died = new Promise<never>((_, reject) => {
    // A script that does not load gives no message.
    worker.addEventListener('error', ({ message }) =>
      reject(new WorkerDiedError(message ? `${message}.` : NOT_LOADED)),
    );
    worker.addEventListener('messageerror', () =>
      reject(new WorkerDiedError('The engine sent a message that could not be decoded.')),
    );
  });
  died.catch(() => {}); // whoever waits for the worker is told
  return { worker, died };
}

const NOT_LOADED = "The engine's script could not be loaded. Check the connection and reload the page.";
