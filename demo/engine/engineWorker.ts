/** Starts an engine worker and reports when it fails, also after its start. */

import { untilReady, WorkerDiedError } from '../../src/workers/remoteEngine.ts';
import { MissingPartError } from './configs.ts';

interface EngineWorker {
  worker: Worker;
  /** Rejects when the worker cannot be started, does not answer in time, or dies. */
  died: Promise<never>;
}

/** Starts an engine worker. */
export function startEngineWorker(): EngineWorker {
  const worker = new Worker(new URL('./engine.worker.ts', import.meta.url), { type: 'module' });
  const died = new Promise<never>((_, reject) => {
    // The event of a script that does not load has no message.
    worker.addEventListener('error', ({ message }) =>
      reject(message ? new WorkerDiedError(`${message}.`) : new MissingPartError(NOT_LOADED)),
    );
    worker.addEventListener('messageerror', () =>
      reject(new WorkerDiedError('The engine sent a message that could not be decoded.')),
    );
    const silent = () => reject(new WorkerDiedError(`Its script did not answer within ${LIMIT_MS / 1000} seconds.`));
    const timer = setTimeout(silent, LIMIT_MS);
    void untilReady(worker).then(() => clearTimeout(timer));
  });
  died.catch(() => {}); // callers that await the worker get the error
  return { worker, died };
}

/** Milliseconds within which the script of a worker must be loaded and answer. */
const LIMIT_MS = 30_000;

const NOT_LOADED = "The engine's script could not be loaded. Reload the page.";
