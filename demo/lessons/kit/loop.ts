/** Runs a reader's training loop in its own worker. One loop runs at a time, and Stop ends the worker immediately. */

import { short } from '../../../src/ui/format.ts';
import {
  LoopError,
  type LoopFacts,
  type LoopOptions,
  type LoopReply,
  type LoopRequest,
  type LoopStep,
} from './runLoop.ts';

interface LoopWork extends Omit<LoopRequest, 'model'> {
  /** Folder of a shipped model, such as checkpoints/reverse-text. */
  checkpoint: string;
  onStep: (step: LoopStep) => void;
  signal: AbortSignal;
}

interface ButtonWork {
  options: LoopOptions;
  /** Returns the text of the loop. */
  text: () => string;
  /** Called after each step with all steps so far. */
  onSteps: (steps: readonly LoopStep[]) => void;
  /** Called with the error in the loop's text, to mark its line, and with undefined when the loop starts. The button shows the sentence. */
  onMistake: (mistake: { ok: false; says: string; line: number | undefined } | undefined) => void;
}

/** Returns the work of a LiveButton that trains the warm start of reverse-text with a reader's loop. */
export const loopWork =
  ({ text, options, onSteps, onMistake }: ButtonWork) =>
  async (signal: AbortSignal, say: (text: string) => void): Promise<string | undefined> => {
    const steps: LoopStep[] = [];
    onMistake(undefined);
    const onStep = (step: LoopStep) => {
      if (signal.aborted) return;
      steps.push(step);
      onSteps([...steps]);
      say(`Step ${step.step}, reward ${short(step.reward)}.`);
    };
    try {
      const work = { text: text(), options, onStep, signal, checkpoint: 'checkpoints/reverse-text' };
      const facts = await runInWorker(work);
      return facts && `${facts.updates} updates.`;
    } catch (error) {
      if (error instanceof LoopError) onMistake({ ok: false, says: error.message, line: error.line });
      throw error;
    }
  };

/** Stops the loop that is running. */
let endCurrent = (): void => {};

/**
 * Runs a training loop, and returns what the loop did; undefined if `signal` aborted or another loop was started. Rejects with a text for
 * the reader if a GPU is missing, and with LoopError for an error of the loop.
 */
export async function runInWorker({
  checkpoint,
  onStep,
  signal,
  ...request
}: LoopWork): Promise<LoopFacts | undefined> {
  endCurrent();
  let end = () => {};
  const ended = new Promise<undefined>((resolve) => (end = () => resolve(undefined)));
  endCurrent = end;
  signal.addEventListener('abort', end);
  if (signal.aborted) end();
  let worker: Worker | undefined;
  const work = async () => {
    const [{ findAdapter }, { fetchShipped }] = await Promise.all([
      import('../../engine/adapter.ts'),
      import('../../engine/files.ts'),
    ]);
    await findAdapter(); // says what to do without a GPU
    const model = await fetchShipped(checkpoint);
    if (endCurrent !== end) return undefined;
    worker = new Worker(new URL('./loopWorker.ts', import.meta.url), { type: 'module' });
    return answer(worker, { ...request, model }, onStep);
  };
  try {
    return await Promise.race([work(), ended]);
  } finally {
    worker?.terminate();
    if (endCurrent === end) endCurrent = () => {};
  }
}

/** Milliseconds without a step after which a loop is ended. The limit ends loops that run forever, so it is generous. */
const SILENT_MS = 120_000;

function answer(worker: Worker, request: LoopRequest, onStep: (step: LoopStep) => void): Promise<LoopFacts> {
  let waiting: ReturnType<typeof setTimeout>;
  const answered = new Promise<LoopFacts>((resolve, reject) => {
    const wait = () => {
      clearTimeout(waiting);
      const silent = `No step ended for ${SILENT_MS / 1000} s, so the loop was stopped. Look for a loop that does not end.`;
      waiting = setTimeout(() => reject(new LoopError(silent)), SILENT_MS);
    };
    wait();
    worker.addEventListener('error', ({ message }) =>
      reject(new Error(`The loop's worker ended${message ? `: ${message}` : ''}. Reload the page and run it again.`)),
    );
    worker.addEventListener('message', ({ data }: MessageEvent<LoopReply>) => {
      wait();
      if ('step' in data) onStep(data.step);
      else if ('facts' in data) resolve(data.facts);
      else reject(new LoopError(data.failed.message, data.failed.line));
    });
    worker.postMessage(request);
  });
  return answered.finally(() => clearTimeout(waiting));
}
