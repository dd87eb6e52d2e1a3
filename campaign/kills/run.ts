/** Runs real processes of the command line on the smallest recipe: starts, kills and compares them. */

import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';

/** The command line in the same bundle as the campaign. */
const MAIN = join(dirname(process.argv[1]), 'bin.js');

/** Config of a run that saves after each of its steps. */
const SMALL = [
  ...['trainer.totalTrainingSteps=8', 'trainer.saveFreq=1', 'trainer.kernelTuning=off', 'trainer.profile=false'],
  ...['data.trainBatchSize=4', 'data.valMaxSamples=8', 'rollout.n=4', 'rollout.maxNumSeqs=16'],
  'actor.ppoMiniBatchSize=2',
];
const WARM_STEPS = 8;

export interface Ended {
  code: number | null;
  signal: NodeJS.Signals | null;
  /** Text on standard error so far. */
  said: string;
  seconds: number;
}

export interface Running {
  child: ChildProcess;
  ended: Promise<Ended>;
  /** Resolves when standard error contains the words, or the process has ended. */
  until(words: string): Promise<void>;
}

/** A folder of runs, with its own copy of the warm-started model. */
export class Runs {
  readonly folder = mkdtempSync(join(tmpdir(), 'webgrpo-kills-'));
  readonly #running = new Set<ChildProcess>();
  readonly warmStart = join(this.folder, 'warm.yaml');

  constructor() {
    process.once('SIGTERM', () => {
      this.close();
      process.exit(143);
    });
    const recipe = readFileSync('configs/reverse-text-sft.yaml', 'utf8');
    const short = recipe
      .replace(/^name: .*/m, 'name: warm')
      .replace(/totalTrainingSteps: .*/, `totalTrainingSteps: ${WARM_STEPS}`);
    writeFileSync(this.warmStart, short);
  }

  path(name: string): string {
    return join(this.folder, name);
  }

  /** Starts `webgrpo train` for the run of that name. It resumes from its newest checkpoint if there is one. */
  train(name: string, ...overrides: string[]): Running {
    const words = [`name=${name}`, `model.path=${this.warmStart}`, `trainer.defaultLocalDir=${this.folder}`];
    return this.#start([
      'train',
      'configs/reverse-text.yaml',
      ...words,
      ...SMALL,
      'trainer.resumeMode=auto',
      ...overrides,
    ]);
  }

  #start(args: string[]): Running {
    const started = performance.now();
    const child = spawn(process.execPath, ['--no-warnings', MAIN, ...args], {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, WEBGRPO_ROBUSTNESS: 'off' },
    });
    this.#running.add(child);
    let said = '';
    child.stderr.on('data', (data) => (said += String(data)));
    const ended = new Promise<Ended>((resolve, reject) => {
      child.on('error', reject);
      child.on('close', (code, signal) => {
        this.#running.delete(child);
        resolve({ code, signal, said, seconds: (performance.now() - started) / 1000 });
      });
    });
    const until = (words: string) => {
      const heard = new Promise<void>((resolve) => {
        const look = () => said.includes(words) && resolve();
        look();
        child.stderr.on('data', look);
      });
      return Promise.race([heard, ended.then(() => undefined)]);
    };
    return { child, ended, until };
  }

  /** Ends all processes that still run. */
  close(): void {
    for (const child of this.#running) child.kill('SIGKILL');
  }
}

/**
 * Returns hashes of all files that must be equal in a killed and an undisturbed run: metrics without times, rollouts, checkpoints. Partial
 * files left by interrupted writes are ignored.
 */
export function outcome(run: string): Map<string, string> {
  const found = new Map<string, string>();
  const sha = (content: string | Uint8Array) => createHash('sha256').update(content).digest('hex').slice(0, 16);
  for (const folder of ['rollouts', 'checkpoints'])
    for (const entry of readdirSync(join(run, folder), { recursive: true, withFileTypes: true })) {
      const path = join(entry.parentPath, entry.name);
      if (entry.isFile() && !relative(run, path).includes('/.'))
        found.set(relative(run, path), sha(readFileSync(path)));
    }
  const lines = readFileSync(join(run, 'metrics.jsonl'), 'utf8').trim().split('\n');
  lines.forEach((line, i) => {
    const isTime = (name: string) => /^(timing_\w+|perf)\//.test(name);
    const metrics = Object.entries(JSON.parse(line) as object).filter(([name]) => !isTime(name));
    found.set(`metrics.jsonl line ${i + 1}`, sha(JSON.stringify(metrics)));
  });
  return found;
}

/** Describes the differences of two runs; undefined if they are equal. */
export function difference(run: string, want: ReadonlyMap<string, string>): string | undefined {
  if (!existsSync(join(run, 'metrics.jsonl'))) return 'no metrics.jsonl';
  const got = outcome(run);
  const names = [...new Set([...want.keys(), ...got.keys()])].filter((name) => got.get(name) !== want.get(name));
  return names.length === 0 ? undefined : `${names.length} differ, the first ${names[0]}`;
}
