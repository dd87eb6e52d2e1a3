/**
 * Kills, stops and duplicates processes, or moves their folders away, at random moments. The runs are then resumed and must end exactly
 * like an undisturbed one.
 */

import { existsSync, readdirSync, renameSync, rmSync, watch } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { keyedRng, type Rng } from '../src/tasks/random.ts';
import { difference, type Ended, outcome, type Running, Runs } from './kills/run.ts';
import type { CampaignOptions, CampaignPart, CampaignRow } from './part.ts';

/** The undisturbed run, which all others are compared with. */
interface Whole {
  runs: Runs;
  want: ReadonlyMap<string, string>;
  seconds: number;
}

/** One case: kills or disturbs a run. Resolves to a sentence if something went wrong, otherwise to undefined. */
type Case = (whole: Whole, name: string, rng: Rng) => Promise<string | undefined>;

/** Texts on standard error that mark the moments to kill at: start, loading, compilation, training. The kill follows within AFTER_MS. */
const MOMENTS = ['', 'model: ', 'kernels: compiling', 'adapter: ', '\nstep ', '\nstep '];
const AFTER_MS = 300;

/** Seconds after which no more processes are killed. A slow machine therefore has fewer kills. */
const FULL_S = 900;

/** Maximum number of kills of one run, which then runs to its end. */
const KILLS_A_CHAIN = 8;

/** Makes an undisturbed run, then runs `work`, which compares its own runs with it. */
async function besideWhole<T>(say: (line: string) => void, work: (whole: Whole) => Promise<T>): Promise<T> {
  const runs = new Runs();
  try {
    const first = await runs.train('whole').ended;
    if (first.code !== 0) throw new Error(`The run that nothing disturbs failed: ${first.said}`);
    const again = await runs.train('again').ended;
    const whole: Whole = { runs, want: outcome(runs.path('whole')), seconds: again.seconds };
    const different = difference(runs.path('again'), whole.want);
    if (different !== undefined) throw new Error(`Two runs that nothing disturbs are not the same: ${different}`);
    say(`${whole.seconds.toFixed(1)} s a run`);
    return await work(whole);
  } finally {
    runs.close();
    rmSync(runs.folder, { recursive: true, force: true });
  }
}

/** Kills two runs at a time. Each is killed until its kills are used up, and must then end like the undisturbed run. */
async function kills(whole: Whole, rng: Rng, count: number, say: (line: string) => void): Promise<CampaignRow> {
  const failures: string[] = [];
  const end = performance.now() + 1000 * FULL_S;
  let [left, done, chains, writes] = [count, 0, 0, 0];
  const chain = async () => {
    while (left > 0 && performance.now() < end) {
      const name = `chain-${chains++}`;
      for (let i = 0; i < KILLS_A_CHAIN && left > 0; i++) {
        left--;
        const atWrite = rng.uniform() < 0.5;
        const { signal, code, said } = await killed(whole, name, atWrite, rng);
        if (signal === 'SIGKILL') done++;
        else if (code !== 0) failures.push(`${name}: ended with ${code} before the kill: ${said}`);
        writes += atWrite && signal === 'SIGKILL' ? 1 : 0;
        if (code === 0) break; // the run had ended before the kill
      }
      const wrong = await endsLike(whole, name);
      if (wrong !== undefined) failures.push(`${name}: ${wrong}`);
      rmSync(whole.runs.path(name), { recursive: true, force: true });
      if (chains % 10 === 0) say(`${done} kills`);
    }
  };
  await Promise.all([chain(), chain()]);
  const what =
    'kill -9 at a drawn moment; gone on with until done: metrics, rollouts and checkpoints as of the unbroken run';
  return {
    what,
    tried: done,
    wrong: failures.length,
    note: `${chains} runs, ${writes} kills in the writing of a checkpoint`,
    failures,
  };
}

/** Starts a run and kills its process at a random moment: after some milliseconds, or after some changes in its checkpoint folder. */
async function killed({ runs }: Whole, name: string, atWrite: boolean, rng: Rng): Promise<Ended> {
  const running = runs.train(name);
  if (atWrite) await writesIn(`${runs.path(name)}/checkpoints`, rng.int(1, 8), running);
  else await running.until(rng.pick(MOMENTS));
  await sleep(rng.uniform() * (atWrite ? 4 : AFTER_MS));
  running.child.kill('SIGKILL');
  return running.ended;
}

/** Resolves after `count` files or folders were added, deleted or changed in a folder, which may not exist yet. */
async function writesIn(folder: string, count: number, { ended }: Running): Promise<void> {
  let isOver = false;
  void ended.then(() => (isOver = true));
  while (!existsSync(folder) && !isOver) await sleep(2);
  if (isOver) return;
  let left = count;
  await new Promise<void>((resolve) => {
    const watcher = watch(folder, () => --left <= 0 && resolve());
    void ended.then(() => resolve());
    watcher.on('error', () => resolve());
  });
}

/** Resumes a run to its end. Returns how it differs from an undisturbed run; undefined if the two are equal. */
async function endsLike({ runs, want }: Whole, name: string): Promise<string | undefined> {
  const { code, said } = await runs.train(name).ended;
  return code === 0 ? difference(runs.path(name), want) : `ended with ${code}: ${said}`;
}

const expected = (what: string, got: unknown, want: unknown): string | undefined =>
  got === want ? undefined : `${what} is ${String(got)}, not ${String(want)}`;

/** Sends one signal. The run must save, exit with code 3, and then be resumable. */
const stopped =
  (signal: NodeJS.Signals): Case =>
  async (whole, name, rng) => {
    const running = whole.runs.train(name);
    await running.until(`step ${rng.int(1, 5)}/8`);
    running.child.kill(signal);
    const { code, said } = await running.ended;
    const wrong = expected('the exit code', code, 3) ?? (said.includes('To resume: ') ? undefined : said);
    return wrong ?? endsLike(whole, name);
  };

/** Sends a second signal after one that requested a stop. The run must end immediately, and then be resumable. */
const stoppedTwice =
  (signal: NodeJS.Signals): Case =>
  async (whole, name, rng) => {
    // A step takes seconds, so that the second signal arrives during it.
    const long = [
      'data.trainBatchSize=64',
      'actor.ppoMiniBatchSize=64',
      'rollout.n=32',
      'trainer.valBeforeTrain=false',
    ];
    const running = whole.runs.train(name, ...long);
    await running.until('step 1/8');
    await sleep(200 + rng.uniform() * 50);
    running.child.kill(signal);
    await running.until('press Ctrl-C again');
    await sleep(400); // an earlier one would count as the same signal, forwarded by a parent
    running.child.kill(signal);
    const { signal: endedBy, said } = await running.ended;
    rmSync(whole.runs.path(name), { recursive: true, force: true });
    const wrong = expected('the signal that ended it', endedBy, signal);
    return wrong && `${wrong}: ${said.slice(-500)}`;
  };

/** Sends a signal during the warm start. Nothing may be trained on the incomplete model, and the next run must train it again. */
const inWarmStart =
  (signal: NodeJS.Signals, exitCode: number | null): Case =>
  async (whole, name, rng) => {
    const { runs } = whole;
    rmSync(runs.path('warm'), { recursive: true, force: true });
    const running = runs.train(name);
    await running.until(rng.uniform() < 0.5 ? 'step 1/' : 'kernels: compiling');
    running.child.kill(signal);
    const { code, signal: endedBy } = await running.ended;
    if (existsSync(runs.path(name))) return 'a run was made on the half-made model';
    const wrong = code === exitCode || endedBy === 'SIGINT' ? undefined : expected('the exit code', code, exitCode);
    return wrong ?? endsLike(whole, name);
  };

/** Starts two processes on one run folder, together or one later. One of them must be refused, and the other must not be disturbed. */
const twoAtOnce =
  (delay: number): Case =>
  async (whole, name) => {
    const { runs } = whole;
    const first = runs.train(name);
    if (delay > 0) await first.until(`step ${delay}/8`);
    const ends = await Promise.all([first.ended, runs.train(name, 'trainer.resumeMode=disable').ended]);
    const [winner, loser] = ends.sort((a, b) => (a.code ?? 9) - (b.code ?? 9));
    return (
      expected('one exit code', winner.code, 0) ??
      expected('the other', loser.code, 2) ??
      (/^.* is in use by another run: process \d+ on /m.test(loser.said) ? undefined : loser.said) ??
      difference(runs.path(name), whole.want)
    );
  };

/** Moves the run folder away during the run. */
const robbed =
  (take: (path: string) => void, isBack: boolean): Case =>
  async (whole, name, rng) => {
    const path = whole.runs.path(name);
    const running = whole.runs.train(name);
    await running.until(`step ${rng.int(1, 5)}/8`);
    take(path);
    const { code, said } = await running.ended;
    const wrong =
      expected('the exit code', code, 1) ??
      (/^The run folder .* was renamed, deleted or replaced during the run/m.test(said) ? undefined : said) ??
      (existsSync(path) ? `the folder was made again: ${readdirSync(path).join(', ')}` : undefined);
    if (wrong !== undefined) return wrong;
    if (isBack) renameSync(`${path}-away`, path);
    return endsLike(whole, name);
  };

const rename = (path: string) => renameSync(path, `${path}-away`);
const remove = (path: string) => rmSync(path, { recursive: true });

/** Kinds of faults other than repeated kills. Each has its cases by label, and the number of cases that the short form runs. */
const KINDS: Record<string, { cases: [label: string, one: Case][]; count: number }> = {
  'SIGTERM, SIGHUP, Ctrl-C once: saved, exit code 3, gone on with to the same end': {
    cases: (['SIGTERM', 'SIGHUP', 'SIGINT', 'SIGTERM', 'SIGHUP', 'SIGINT'] as const).map((name) => [
      name,
      stopped(name),
    ]),
    count: 1,
  },
  '... twice: ends at once, by that signal': {
    cases: [
      ['SIGTERM', stoppedTwice('SIGTERM')],
      ['SIGHUP', stoppedTwice('SIGHUP')],
      ['SIGINT', stoppedTwice('SIGINT')],
    ],
    count: 0,
  },
  'killed or stopped in the warm start: made anew, the same end': {
    cases: [
      ['SIGINT', inWarmStart('SIGINT', 3)],
      ['SIGKILL', inWarmStart('SIGKILL', null)],
      ['SIGINT', inWarmStart('SIGINT', 3)],
      ['SIGKILL', inWarmStart('SIGKILL', null)],
    ],
    count: 0,
  },
  'two runs on one folder: one refused, the other as if alone': {
    cases: [0, 0, 1, 3].map((delay) => [`the second ${delay} steps later`, twoAtOnce(delay)]),
    count: 1,
  },
  'folder renamed or deleted under the run: one sentence, no other folder, the same end': {
    cases: [
      ['renamed', robbed(rename, true)],
      ['deleted', robbed(remove, false)],
      ['renamed', robbed(rename, true)],
      ['deleted', robbed(remove, false)],
    ],
    count: 1,
  },
};

export const killsPart: CampaignPart = {
  name: 'kills',
  run: ({ seed, full, say }) =>
    besideWhole(say, async (whole) => [await kills(whole, keyedRng('kills', seed), full ? 200 : 3, say)]),
};

export const signalsPart: CampaignPart = {
  name: 'signals',
  run: (options) => besideWhole(options.say, (whole) => kinds(whole, options)),
};

async function kinds(whole: Whole, { seed, full, say }: CampaignOptions): Promise<CampaignRow[]> {
  const rows: CampaignRow[] = [];
  for (const [what, { cases, count }] of Object.entries(KINDS)) {
    const tried = full ? cases : cases.slice(0, count);
    const failures: string[] = [];
    for (const [i, [label, one]] of tried.entries()) {
      const wrong = await one(whole, `${what.replaceAll(/[^A-Za-z]/g, '').slice(0, 4)}-${i}`, keyedRng(what, seed, i));
      if (wrong !== undefined) failures.push(`${what}, ${label}: ${wrong}`);
    }
    rows.push({ what, tried: tried.length, wrong: failures.length, failures });
    say(`${what}: ${tried.length} tried, ${failures.length} wrong`);
  }
  return rows;
}
