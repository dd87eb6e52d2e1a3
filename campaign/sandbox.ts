/** Programs for the sandbox that try to escape, outlive their call, take all resources, or never end. */

import { existsSync, readFileSync } from 'node:fs';
import { runJavascript } from '../src/extensions/sandbox/index.ts';
import type { CampaignPart } from './part.ts';
import { BOMBS, ESCAPES, TRICKS } from './sandbox/programs.ts';

const LIMITS = { timeMs: 250, memoryBytes: 16 * 2 ** 20, maxOutput: 1000 };
/** Milliseconds of processor time of a program, including the end of its worker and the start of another. */
const LIMIT_MS = 6000;
/** Milliseconds of processor time of the main thread: less than a program that runs there may take, more than it takes to start a worker. */
const BLOCKED_MS = 150;
const PROBE =
  "typeof leaked + Object.prototype.leaked + [].leaked + (Array.prototype.map + '').includes('native') + typeof fetch + " +
  'typeof process + typeof postMessage + typeof require + (Math.random() === Math.random()) + Math.random() + Date.now()';

/** Returns the milliseconds of processor time of this process, and of this thread. Only Linux tells the latter, in steps of 10 ms. */
function usedMs(): { all: number; own: number } {
  const { user, system } = process.cpuUsage();
  const stat = `/proc/self/task/${process.pid}/stat`;
  const [, rest] = existsSync(stat) ? readFileSync(stat, 'utf8').split(') ') : [];
  const ticks = rest?.split(' ').slice(11, 13).map(Number) ?? [0, 0];
  return { all: (user + system) / 1000, own: 10 * (ticks[0] + ticks[1]) };
}

async function wrongOf(code: string, clean: string): Promise<string | undefined> {
  const before = usedMs();
  const output = await runJavascript(code, LIMITS, undefined, 'key').catch((error: unknown) => error as Error);
  const after = usedMs();
  const [took, blocked] = [after.all - before.all, after.own - before.own];
  if (output instanceof Error) return `rejects: ${output.message.slice(0, 100)}`;
  if (typeof output !== 'string' || output.length > LIMITS.maxOutput + 100) return `gives ${output.length} characters`;
  if (output.includes('OUT')) return `got out: ${output.slice(0, 100)}`;
  if (took > LIMIT_MS) return `ran for ${took.toFixed(0)} ms`;
  if (blocked > BLOCKED_MS) return `held the main thread for ${blocked.toFixed(0)} ms`;
  const seen = await runJavascript(PROBE, { ...LIMITS, timeMs: 5000 }, undefined, 'key');
  return seen === clean ? undefined : `the next program sees ${seen.slice(0, 100)}`;
}

export const part: CampaignPart = {
  name: 'sandbox',
  async run({ full }) {
    const clean = await runJavascript(PROBE, { ...LIMITS, timeMs: 5000 }, undefined, 'key');
    const programs = [...ESCAPES, ...BOMBS, ...TRICKS];
    const tried = full ? programs : programs.filter((_, i) => i % 4 === 0);
    const failures: string[] = [];
    const written: string[] = [];
    // Output of a sandbox worker would appear here, as output of this process.
    const { write } = process.stderr;
    process.stderr.write = (text: string | Uint8Array) => written.push(String(text)) > 0;
    try {
      for (const code of tried) {
        const wrong = await wrongOf(code, clean);
        if (wrong !== undefined) failures.push(`sandbox: ${code.slice(0, 120)}: ${wrong}`);
        if (written.length > 0)
          failures.push(`sandbox: ${code.slice(0, 120)}: writes ${written.splice(0).join().slice(0, 100)}`);
      }
    } finally {
      process.stderr.write = write;
    }
    return [{ what: 'programs in the sandbox', tried: tried.length, wrong: failures.length, failures }];
  },
};
