/**
 * `node scripts/record-run.mjs` writes the data of lesson 3, demo/lessons/3-run/recorded.json: nine runs of the lesson's loop, three
 * learning rates with three seeds each (a quarter of an hour on two quiet cores). `--keep FOLDER` stores every finished run there, and
 * continues from it.
 */

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { inline } from './lib/inline.mjs';
import { exitOnSetupError, say } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

/** @typedef {import('../demo/lessons/kit/runLoop.ts').LoopStep} LoopStep */

const FILE = join(ROOT, 'demo', 'lessons', '3-run', 'recorded.json');
const RATES = [1e-3, 1e-2, 1e-4];
const SEEDS = [1, 2, 3];
/** Steps of the first run whose tries are stored. */
const SHOWN = [1, 10, 20, 40, 60];

/** Metrics of the page's recorded run that figure 3.3 draws. */
const METRICS = [
  ...['critic/score/mean', 'val-core/gsm8k-tool/acc/mean@1', 'actor/entropy', 'actor/ppo_kl', 'actor/grad_norm'],
  ...['response_length/mean', 'actor/pg_loss'],
];

const rounded = (/** @type {number} */ value) => Number(value.toPrecision(4));

/** Returns the values of a metric by step; null for a step without the metric. */
const valuesOf = (/** @type {LoopStep[]} */ steps, /** @type {'reward' | 'loss' | 'entropy' | 'gradNorm'} */ name) =>
  steps.map(({ [name]: value }) => (typeof value === 'number' ? rounded(value) : null));

/** Returns [step, value] pairs for each metric of the page's recorded run. */
function recordedRun() {
  const packed = readFileSync(join(ROOT, 'demo', 'recorded', 'gsm8k-tool.bin'));
  /** @type {{ command: string, commit: string, history: Record<string, number>[] }} */
  const { command, commit, history } = JSON.parse(gunzipSync(packed).toString());
  const pointsOf = (/** @type {string} */ name) =>
    history.filter((line) => name in line).map((line) => [line['training/global_step'], rounded(line[name])]);
  return { command, commit, metrics: Object.fromEntries(METRICS.map((name) => [name, pointsOf(name)])) };
}

try {
  const { values } = parseArgs({ options: { keep: { type: 'string', default: join(tmpdir(), 'webgrpo-lesson-3') } } });
  Object.assign(process.env, setup({ dev: false, adapter: true }));
  process.chdir(ROOT);
  mkdirSync(values.keep, { recursive: true });
  const { build } = await import('vite');
  const outDir = join(ROOT, 'dist', 'record-run');
  await build({
    configFile: false,
    logLevel: 'error',
    plugins: [inline()],
    build: { ssr: join(ROOT, 'scripts', 'lib', 'recordRun.ts'), outDir, target: 'node20' },
  });
  /** @type {typeof import('./lib/recordRun.ts')} */
  const module = await import(join(outDir, 'recordRun.js'));
  const runs = [];
  for (const seed of SEEDS)
    for (const lr of RATES) {
      const kept = join(values.keep, `${lr}-${seed}.json`);
      if (!existsSync(kept)) {
        /** @type {LoopStep[]} */
        const steps = [];
        await module.run(join('demo', 'lessons', '3-run', 'run.js'), { lr, seed }, (step) => steps.push(step));
        writeFileSync(kept, JSON.stringify(steps));
      }
      /** @type {LoopStep[]} */
      const steps = JSON.parse(readFileSync(kept, 'utf8'));
      const [reward, loss] = [valuesOf(steps, 'reward'), valuesOf(steps, 'loss')];
      runs.push({ lr, seed, reward, loss, entropy: valuesOf(steps, 'entropy'), gradNorm: valuesOf(steps, 'gradNorm') });
      say(`rate ${lr}, seed ${seed}: reward ${runs.at(-1)?.reward[0]} to ${runs.at(-1)?.reward.at(-1)}`);
    }
  module.close();
  /** @type {LoopStep[]} */
  const first = JSON.parse(readFileSync(join(values.keep, `${RATES[0]}-${SEEDS[0]}.json`), 'utf8'));
  const seconds = first.map(({ seconds: { draw, gradient, optimizer, other } }) =>
    [draw, gradient, optimizer, other].map(rounded),
  );
  const about = {
    command: 'node scripts/record-run.mjs',
    commit: execFileSync('git', ['-C', ROOT, 'rev-parse', '--short=8', 'HEAD'], { encoding: 'utf8' }).trim(),
    adapter: 'SwiftShader',
    date: new Date().toISOString().slice(0, 10),
    seconds,
    tries: first.filter(({ step }) => SHOWN.includes(step)).map(({ step, tries }) => ({ step, tries })),
  };
  const rows = runs.map((run) => JSON.stringify(run)).join(',\n');
  const whole = JSON.stringify(recordedRun());
  writeFileSync(FILE, `${JSON.stringify(about).slice(0, -1)},\n"whole":${whole},\n"runs":[\n${rows}\n]}\n`);
  say(`${FILE}: ${runs.length} runs`);
} catch (error) {
  exitOnSetupError(error);
}
