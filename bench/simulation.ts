/**
 * `node scripts/bench-simulation.mjs`: runs slow searches on one device and predicts from the profile how long other pipelines and a room
 * would take. Then runs those and compares.
 *   KEY=VALUE    settings of every run (default: see bench/predict.ts)
 *   --steps N    of every run (default 5); the means exclude the first, in which programs compile and workers join
 *   --only NAMES of the rows, separated by commas    --json  the object instead of the table    --keep  writes
 *   test/fixtures/simulation.json
 */

import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { numberFlag, readArgs } from '../src/cli/args.ts';
import { disk } from '../src/cli/files.ts';
import { aligned } from '../src/cli/table.ts';
import { InputError } from '../src/errors.ts';
import type { Metrics } from '../src/grpo/metrics.ts';
import { runWorkload, type SimulatedStep, type Workload } from '../src/extensions/simulation/index.ts';
import { RunFolder } from '../src/runs/runFolder.ts';
import { type Asked, CONFIG, LOOP, type Means, meansOf, settingsOf, predict, type Row, TASK } from './predict.ts';

const FIXTURE = 'test/fixtures/simulation.json';
const ROWS: Row[] = [
  { name: 'on-policy', pipeline: 'on-policy', workers: 0, verifies: false },
  { name: 'one-step-off', pipeline: 'one-step-off', workers: 0, verifies: false },
  { name: 'fully-async', pipeline: 'fully-async', workers: 0, verifies: false },
  { name: 'room-1', pipeline: 'on-policy', workers: 1, verifies: true },
  { name: 'room-2', pipeline: 'on-policy', workers: 2, verifies: true },
  { name: 'room-2-trusted', pipeline: 'on-policy', workers: 2, verifies: false },
  { name: 'room-2-async', pipeline: 'fully-async', workers: 2, verifies: true },
];

interface Compared extends Row {
  predicted: Means;
  measured: Means;
  /** Load average of the machine at the end of the run. */
  load: number;
}

const say = (line: string) => process.stderr.write(`bench: ${line}\n`);

async function main(args: string[]): Promise<void> {
  const { flags, overrides } = readArgs(args, {
    steps: { value: 'N', help: 'of every run' },
    only: { value: 'NAMES', help: 'rows, comma-separated' },
    json: { help: 'print the object' },
    keep: { help: `write ${FIXTURE}` },
  });
  const asked: Asked = { steps: numberFlag(flags, 'steps', 5, [2, 100]), overrides };
  const folder = mkdtempSync(join(tmpdir(), 'webgrpo-simulation-'));
  try {
    const runs = new Runs(folder, asked);
    const [alone, ...others] = ROWS;
    const only = typeof flags['only'] === 'string' ? flags['only'].split(',') : undefined;
    const first = await runs.measure(alone);
    const work = rounded(await runs.workload(alone));
    const compared: Compared[] = [{ ...alone, predicted: predict(work, alone, asked), ...first }];
    for (const row of others.filter(({ name }) => !only || only.includes(name)))
      compared.push({ ...row, predicted: predict(work, row, asked), ...(await runs.measure(row)) });
    const { adapter } = runs;
    const commit = execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim();
    const command = 'node scripts/bench-simulation.mjs --keep';
    const result = { command, commit, adapter, ...asked, rows: compared };
    if (flags['keep'] === true) writeFileSync(FIXTURE, `${JSON.stringify({ ...result, work })}\n`);
    const text = flags['json'] === true ? JSON.stringify(result, null, 2) : table(compared);
    process.stdout.write(`${text}\n`);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Runs `webgrpo train` as a user would, and rooms with their workers. */
class Runs {
  adapter = '';
  readonly #folder: string;
  readonly #asked: Asked;

  constructor(folder: string, asked: Asked) {
    [this.#folder, this.#asked] = [folder, asked];
  }

  async measure(row: Row): Promise<{ measured: Means; load: number }> {
    say(`${row.name} ...`);
    await (row.workers === 0 ? this.#train(row) : this.#room(row));
    const steps = (await this.#open(row).metrics()).filter((metrics) => metrics['training/global_step'] > 0);
    const measured = meansOf(steps.map(measuredStep));
    say(`${row.name}: ${measured.stepSeconds.toFixed(2)} s a step`);
    return { measured, load: Math.round(10 * loadavg()[0]) / 10 };
  }

  async workload(row: Row): Promise<Workload> {
    const folder = this.#open(row);
    return runWorkload(await folder.profiles(), await folder.metrics());
  }

  #open({ name }: Row): RunFolder {
    return RunFolder.open(disk, join(this.#folder, name));
  }

  #args(row: Row): string[] {
    const own = [`name=${row.name}`, `trainer.defaultLocalDir=${this.#folder}`];
    return [CONFIG, '--import', LOOP, ...settingsOf(row, this.#asked), ...own];
  }

  async #train(row: Row): Promise<void> {
    const run = start(['train', ...this.#args(row)]);
    await run.ended;
    this.adapter = /adapter: (.*)/.exec(run.said)?.[1] ?? '';
  }

  async #room(row: Row): Promise<void> {
    const room = start(['room', ...this.#args(row), '--port', '0', ...(row.verifies ? [] : ['--trust-workers'])]);
    const workers: ReturnType<typeof start>[] = [];
    try {
      const [, address, code] = await room.says(/webgrpo join (\S+) --code (\S+)/);
      for (let w = 1; w <= row.workers; w++)
        workers.push(
          start(['join', address, '--code', code, '--name', `w${w}`, '--module', TASK, '--import', LOOP, '--json']),
        );
      await Promise.all([room, ...workers].map(({ ended }) => ended));
    } finally {
      for (const { child } of [room, ...workers]) child.kill();
    }
  }
}

/** Starts a process of the command line; `ended` rejects if it fails. */
function start(args: string[]) {
  const main = join(dirname(process.argv[1]), 'bin.js');
  const child: ChildProcess = spawn(process.execPath, ['--no-warnings', main, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const process_ = {
    child,
    said: '',
    ended: new Promise<void>((resolve, reject) =>
      child.once('exit', (code) =>
        code === 0 ? resolve() : reject(new Error(`webgrpo ${args[0]} ended with code ${code}:\n${process_.said}`)),
      ),
    ),
    async says(pattern: RegExp): Promise<RegExpExecArray> {
      for (;;) {
        const found = pattern.exec(process_.said);
        if (found) return found;
        await Promise.race([process_.ended, new Promise((resolve) => setTimeout(resolve, 100))]);
      }
    },
  };
  process_.ended.catch(() => {}); // callers that await it get the error
  for (const stream of [child.stdout!, child.stderr!]) stream.on('data', (data) => (process_.said += String(data)));
  return process_;
}

/**
 * Returns the times of a step. Without idle ratios in its metrics (on-policy), training is idle during generation, and rollout otherwise.
 */
function measuredStep(metrics: Metrics): SimulatedStep {
  const seconds = metrics['timing_s/step'];
  const generated = metrics['timing_s/gen'] / seconds;
  const trainer = metrics['trainer/idle_ratio'] ?? generated;
  return { seconds, idleShare: { trainer, rollouter: metrics['rollouter/idle_ratio'] ?? 1 - generated } };
}

/** Rounds numbers for storage: milliseconds to integers, token counts to tenths. */
const rounded = (work: Workload): Workload => ({
  ...work,
  steps: work.steps.map((step) =>
    step.map(({ group, turns }) => ({
      group,
      turns: turns.map(({ tokens, toolSeconds }) => ({
        tokens: Math.round(10 * tokens) / 10,
        toolSeconds: Math.round(1000 * toolSeconds) / 1000,
      })),
    })),
  ),
});

function table(rows: readonly Compared[]): string {
  const percent = (share: number) => `${(100 * share).toFixed(0)}%`;
  const cells = rows.map(({ name, predicted, measured, load }) => {
    const error = predicted.stepSeconds / measured.stepSeconds - 1;
    const shares = (of: 'trainer' | 'rollouter') =>
      [predicted, measured].map(({ idleShare }) => percent(idleShare[of]));
    return [
      name,
      predicted.stepSeconds.toFixed(2),
      measured.stepSeconds.toFixed(2),
      `${error < 0 ? '' : '+'}${percent(error)}`,
      shares('trainer').join(' / '),
      shares('rollouter').join(' / '),
      load.toFixed(1),
    ];
  });
  const header = ['run', 'predicted s/step', 'measured', 'error', 'training waits', 'no sample under way', 'load'];
  return aligned([header, ...cells]);
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof InputError)) throw error;
  process.stderr.write(`${error.message}\n`);
  process.exitCode = 2;
}
