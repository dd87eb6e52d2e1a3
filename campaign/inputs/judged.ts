/**
 * Tests inputs in a child process. An input that hangs, takes all memory or aborts V8 is then only counted, and the campaign continues.
 * Each child tests inputs until it dies.
 */

import { type ChildProcess, fork } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import type { CampaignRow } from '../part.ts';
import type { Input, Verdict } from './input.ts';

const LIMIT_MS = 10_000;
const HEAP_MB = 1024;

class Judge {
  readonly #folder: string;
  #child: ChildProcess | undefined;

  /** @param folder folder with a checkout's configs and checkpoints; the child works there, and its files stay there */
  constructor(folder: string) {
    this.#folder = folder;
  }

  async judge(input: Input): Promise<Verdict> {
    const child = (this.#child ??= this.#start());
    let timer: NodeJS.Timeout | undefined;
    const verdict = await new Promise<Verdict>((resolve) => {
      const lost = (what: string) => {
        this.close();
        resolve({ wrong: what });
      };
      timer = setTimeout(() => lost(`not done after ${LIMIT_MS / 1000} s`), LIMIT_MS);
      child.once('message', (message) => resolve(message as Verdict));
      child.once('exit', (code, signal) => lost(`ends the process: ${signal ?? code}`));
      child.send(input);
    });
    clearTimeout(timer);
    child.removeAllListeners();
    return verdict;
  }

  #start(): ChildProcess {
    // The child's bundle is in the folder of the campaign's bundle; see vite.cli.config.ts.
    return fork(join(dirname(process.argv[1]), 'campaign-inputs.js'), {
      cwd: this.#folder,
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
      serialization: 'advanced',
      execArgv: [`--max-old-space-size=${HEAP_MB}`],
      // The test inputs must not reach a GPU or a hub.
      env: {
        ...process.env,
        VK_ICD_FILENAMES: '/nowhere/icd.json',
        HF_ENDPOINT: 'http://127.0.0.1:9',
        WEBGRPO_CACHE: 'cache',
      },
    });
  }

  close(): void {
    this.#child?.removeAllListeners();
    this.#child?.kill('SIGKILL');
    this.#child = undefined;
  }
}

/** Tests inputs of one kind and returns their row. */
async function rowOf(judge: Judge, what: string, inputs: readonly Input[]): Promise<CampaignRow> {
  const failures: string[] = [];
  const counts = { works: 0, refused: 0 };
  for (const input of inputs) {
    const { held, wrong } = await judge.judge(input);
    if (held) counts[held]++;
    else failures.push(`${what}: ${wrong}; ${JSON.stringify(input).slice(0, 300)}`);
  }
  return {
    what: `${what}: works, or one sentence, within 10 s and 1 GiB`,
    tried: inputs.length,
    wrong: failures.length,
    note: `${counts.refused} refused, ${counts.works} work`,
    failures,
  };
}

/** Returns one row per kind of input. Runs in a folder with the files that command lines name. */
export async function judgeAll(cases: Record<string, Input[]>, say: (line: string) => void): Promise<CampaignRow[]> {
  const folder = workplace();
  const judge = new Judge(folder);
  const rows: CampaignRow[] = [];
  try {
    for (const [what, inputs] of Object.entries(cases)) {
      rows.push(await rowOf(judge, what, inputs));
      say(`${what}: ${inputs.length}`);
    }
  } finally {
    judge.close();
    rmSync(folder, { recursive: true });
  }
  return rows;
}

/** Creates a folder with the files that command lines name. */
function workplace(): string {
  const folder = mkdtempSync(join(tmpdir(), 'webgrpo-inputs-'));
  for (const name of ['configs', 'checkpoints']) symlinkSync(resolve(name), join(folder, name));
  cpSync('configs/reverse-text.yaml', join(folder, 'a.yaml'));
  writeFileSync(
    join(folder, 'binary'),
    Uint8Array.from({ length: 4096 }, (_, i) => (i * 37) % 256),
  );
  writeFileSync(join(folder, 'tokens.json'), '[[1, 2], [3]]');
  return folder;
}
