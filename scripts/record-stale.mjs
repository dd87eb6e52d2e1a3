/**
 * `node scripts/record-stale.mjs` writes demo/lessons/5-stale/recorded.json: runs of the lesson's loop by delay, loss and seed (half an hour on
 * two quiet cores), and six steps of the default recipe with each pipeline. What is in the folder (`--folder`, default runs/lesson-5) is not run
 * again. The runs without delay are those of lesson 3.
 */

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { inline } from './lib/inline.mjs';
import { runNode } from './lib/runNode.mjs';
import { exitOnSetupError, say, SetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

/** @typedef {import('../demo/lessons/kit/runLoop.ts').LoopStep} LoopStep */
/** @typedef {import('../src/extensions/simulation/index.ts').Workload} Workload */

const LESSON = join(ROOT, 'demo', 'lessons', '5-stale');
/** Losses and delays, most important first. @type {[string, number][]} */
const RUNS = [
  ['grpo', 16],
  ['importance_sampling', 16],
  ['grpo', 4],
  ['grpo', 1],
  ['cispo', 16],
];
const SEEDS = [1, 2, 3];
const PIPELINES = ['on-policy', 'one-step-off', 'fully-async'];
/** Step of each pipeline whose tries are stored. */
const SHOWN = 5;
const SETTINGS = [
  ...['trainer.totalTrainingSteps=6', 'trainer.testFreq=0', 'trainer.valBeforeTrain=false'],
  'data.valMaxSamples=1', // a run ends with an evaluation
];
const KEPT = ['trainer.keepRollouts=true', 'asyncTraining.stalenessThreshold=0.5'];

const rounded = (/** @type {number} */ value, digits = 4) => Number(value.toPrecision(digits));

/** @returns {Promise<typeof import('./lib/recordRun.ts')>} */
async function runner() {
  const { build } = await import('vite');
  const outDir = join(ROOT, 'dist', 'record-stale');
  await build({
    configFile: false,
    logLevel: 'error',
    plugins: [inline()],
    build: { ssr: join(ROOT, 'scripts', 'lib', 'recordRun.ts'), outDir, target: 'node20' },
  });
  return import(join(outDir, 'recordRun.js'));
}

/** Returns the work of the run that the bench measured, as the lesson stores it. */
function measuredWork() {
  const file = readFileSync(join(ROOT, 'test', 'fixtures', 'simulation.json'), 'utf8');
  /** @type {{ work: Workload, rows: { name: string, measured: { stepSeconds: number } }[] }} */
  const { work, rows } = JSON.parse(file);
  const { steps, decode, trainSeconds, syncSeconds, promptTokens } = work;
  const stored = {
    steps: steps.map((samples) =>
      samples.map(({ group, turns }) => [
        group,
        ...turns.flatMap(({ tokens, toolSeconds }) => [tokens, rounded(toolSeconds, 3)]),
      ]),
    ),
    decode: { perPass: rounded(decode.perPass), perRow: rounded(decode.perRow) },
    trainSeconds: trainSeconds.map((seconds) => rounded(seconds)),
    ...{ syncSeconds: rounded(syncSeconds), promptTokens: rounded(promptTokens) },
  };
  return {
    work: stored,
    measured: PIPELINES.map((name) => rounded(rows.find((row) => row.name === name)?.measured.stepSeconds ?? 0)),
  };
}

try {
  const { values } = parseArgs({
    options: {
      folder: { type: 'string', default: join('runs', 'lesson-5') },
      adapter: { type: 'string' },
      'only-pipelines': { type: 'boolean' },
    },
  });
  Object.assign(process.env, setup({ dev: false, adapter: true }));
  process.chdir(ROOT);
  mkdirSync(values.folder, { recursive: true });
  const module = await runner();
  const pipelines = [];
  for (const name of PIPELINES) {
    const path = join(values.folder, name);
    const settings = [`trainer.pipeline=${name}`, ...SETTINGS, ...KEPT];
    if (!existsSync(join(path, 'rollouts', 'step-6.safetensors'))) {
      const args = ['train', 'configs/gsm8k-tool.yaml', `name=${name}`, `trainer.defaultLocalDir=${values.folder}`];
      const code = await runNode(join(ROOT, 'scripts', 'webgrpo.mjs'), [...args, ...settings], { cwd: ROOT });
      if (code !== 0) throw new SetupError('The run did not finish. Its messages are above.');
    }
    const run = await module.staleRun(path, SHOWN);
    pipelines.push({ name, ages: run.ages, tries: run.tries });
  }
  const runs = [];
  const tokens = [];
  for (const [loss, delay] of RUNS)
    for (const seed of SEEDS) {
      const kept = join(values.folder, `${loss}-${delay}-${seed}.json`);
      if (!existsSync(kept)) {
        if (values['only-pipelines']) continue;
        /** @type {LoopStep[]} */
        const steps = [];
        await module.run(join(LESSON, 'stale.js'), { delay, loss, seed }, (step) => steps.push(step));
        const { logProbs } = /** @type {LoopStep} */ (steps.at(-1));
        writeFileSync(kept, JSON.stringify({ steps: steps.map(module.summaryOf), logProbs }));
      }
      /** @type {{ steps: ReturnType<typeof module.summaryOf>[], logProbs: LoopStep['logProbs'] }} */
      const { steps, logProbs } = JSON.parse(readFileSync(kept, 'utf8'));
      const valuesOf = (/** @type {keyof typeof steps[number]} */ name) =>
        steps.map((step) => rounded(step[name] ?? 0, 3));
      const names = /** @type {const} */ (['reward', 'clipped', 'low', 'middle', 'high', 'share']);
      runs.push({ delay, loss, seed, ...Object.fromEntries(names.map((name) => [name, valuesOf(name)])) });
      if (loss === 'grpo' && seed === 1) {
        const short = (/** @type {number[][]} */ all) => all.map((own) => own.map((value) => Number(value.toFixed(3))));
        tokens.push({ delay, step: steps.length, drawn: short(logProbs.drawn), now: short(logProbs.now) });
      }
      say(`${loss}, delay ${delay}, seed ${seed}: reward ${valuesOf('reward')[0]} to ${valuesOf('reward').at(-1)}`);
    }
  module.close();
  const { work, measured } = measuredWork();
  const about = {
    command: 'node scripts/record-stale.mjs',
    commit: execFileSync('git', ['-C', ROOT, 'rev-parse', '--short=8', 'HEAD'], { encoding: 'utf8' }).trim(),
    adapter: values.adapter ?? 'SwiftShader',
    date: new Date().toISOString().slice(0, 10),
    pipelineCommand: `webgrpo train configs/gsm8k-tool.yaml trainer.pipeline=NAME ${SETTINGS[0]} ${KEPT[1]}`,
    ...{ work, measured, setting: module.SETTING, times: module.timesOf(work, module.SETTING) },
  };
  const lines = (/** @type {object[]} */ rows) => rows.map((row) => JSON.stringify(row)).join(',\n');
  const parts = { pipelines, tokens, runs };
  const text = Object.entries(parts).map(([name, rows]) => `,\n"${name}":[\n${lines(rows)}\n]`);
  writeFileSync(join(LESSON, 'recorded.json'), `${JSON.stringify(about).slice(0, -1)}${text.join('')}}\n`);
  say(`${LESSON}: ${runs.length} runs`);
} catch (error) {
  exitOnSetupError(error);
}
