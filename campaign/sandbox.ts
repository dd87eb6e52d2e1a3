/** Programs for the sandbox that try to escape, outlive their call, take all resources, or never end. */

import { runJavascript } from '../src/extensions/sandbox/index.ts';
import type { CampaignPart } from './part.ts';
import { BOMBS, ESCAPES, TRICKS } from './sandbox/programs.ts';

const LIMITS = { timeMs: 250, memoryBytes: 16 * 2 ** 20, maxOutput: 1000 };
/** Time limit of a program in milliseconds, including the end of its worker and the start of another on a busy machine. */
const LIMIT_MS = 6000;
const BLOCKED_MS = 50;
const PROBE =
  "typeof leaked + Object.prototype.leaked + [].leaked + (Array.prototype.map + '').includes('native') + typeof fetch + " +
  'typeof process + typeof postMessage + typeof require + (Math.random() === Math.random()) + Math.random() + Date.now()';

/** Returns the longest time, in milliseconds, for which this thread was blocked. */
function watch(): { end: () => number } {
  let [last, longest] = [performance.now(), 0];
  const timer = setInterval(() => {
    const now = performance.now();
    longest = Math.max(longest, now - last - 5);
    last = now;
  }, 5);
  return {
    end() {
      clearInterval(timer);
      return longest;
    },
  };
}

async function wrongOf(code: string, clean: string, tries = 1): Promise<string | undefined> {
  const watched = watch();
  const started = performance.now();
  const output = await runJavascript(code, LIMITS, undefined, 'key').catch((error: unknown) => error as Error);
  const [took, blocked] = [performance.now() - started, watched.end()];
  if (output instanceof Error) return `rejects: ${output.message.slice(0, 100)}`;
  if (typeof output !== 'string' || output.length > LIMITS.maxOutput + 100) return `gives ${output.length} characters`;
  if (output.includes('OUT')) return `got out: ${output.slice(0, 100)}`;
  if (took > LIMIT_MS) return `ran for ${took.toFixed(0)} ms`;
  // Other processes can block this thread too, so repeat the measurement. If the program blocks the thread, every repetition shows it.
  if (blocked > BLOCKED_MS && tries < 3) return wrongOf(code, clean, tries + 1);
  if (blocked > BLOCKED_MS) return `held the main thread for ${blocked.toFixed(0)} ms`;
  const after = await runJavascript(PROBE, { ...LIMITS, timeMs: 5000 }, undefined, 'key');
  return after === clean ? undefined : `the next program sees ${after.slice(0, 100)}`;
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
