/** Tests inputs in a worker thread. An input that hangs or takes all memory is then only counted, and the campaign continues. */

import { Worker } from 'node:worker_threads';
import type { CampaignRow } from './part.ts';

/** Result of one input. `wrong` is undefined if the input was handled correctly. */
export interface Verdict {
  wrong?: string;
  /** How the input was handled: "refused" or "works". The campaign's row counts them. */
  held?: string;
}

const LIMIT_MS = 10_000;
const LIMIT_BYTES = 2 ** 30;
const HEAP_MB = 1024;

/** Runs one worker at a time. A worker that ended is replaced at the next input. */
export class Isolated {
  readonly #code: string;
  #worker: Worker | undefined;
  #said: (verdict: Verdict & { ended?: boolean }) => void = () => {};

  /** @param code script that answers each message of its port with a Verdict, one after another */
  constructor(code: string) {
    this.#code = code;
  }

  async judge(input: unknown): Promise<Verdict> {
    const worker = (this.#worker ??= this.#start());
    const before = process.memoryUsage().rss;
    const timers: NodeJS.Timeout[] = [];
    const verdict = await new Promise<Verdict & { ended?: boolean }>((resolve) => {
      this.#said = resolve;
      const end = (wrong: string) => resolve({ wrong, ended: true });
      timers.push(
        setTimeout(() => end(`not done after ${LIMIT_MS / 1000} s`), LIMIT_MS),
        setInterval(() => {
          if (process.memoryUsage().rss - before > LIMIT_BYTES) end('takes more than 1 GiB');
        }, 50),
      );
      worker.postMessage(input);
    });
    timers.forEach(clearInterval);
    if (verdict.ended) await this.close();
    return verdict;
  }

  #start(): Worker {
    const resourceLimits = { maxOldGenerationSizeMb: HEAP_MB };
    const worker = new Worker(this.#code, { eval: true, stdout: true, stderr: true, resourceLimits });
    worker.on('message', (verdict: Verdict) => this.#said(verdict));
    worker.on('error', (error) => this.#said({ wrong: `ends its thread: ${String(error)}`, ended: true }));
    return worker;
  }

  async close(): Promise<void> {
    const worker = this.#worker;
    this.#worker = undefined;
    await worker?.terminate();
  }
}

/** Tests inputs of one kind, each with a way to repeat it, and returns their row. */
export async function judged(
  isolated: Isolated,
  what: string,
  inputs: readonly { name: string; input: unknown }[],
): Promise<CampaignRow> {
  const failures: string[] = [];
  const counts = new Map<string, number>();
  for (const { name, input } of inputs) {
    const { wrong, held = '' } = await isolated.judge(input);
    if (wrong === undefined) counts.set(held, (counts.get(held) ?? 0) + 1);
    else failures.push(`${what}: ${name}: ${wrong}`);
  }
  const note = [...counts].map(([held, count]) => `${count} ${held}`).join(', ');
  return { what, tried: inputs.length, wrong: failures.length, note, failures };
}
