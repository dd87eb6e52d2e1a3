/**
 * `node scripts/record-losses.mjs` writes demo/lessons/2-losses/recorded.json: two groups of step 1 of the default recipe, and every
 * token's log-prob after 0, 1, 2, 4 and 8 updates on these groups (takes seconds on a CPU). `--rate 1e-3` tries another learning rate and
 * writes nothing. `--under` writes demo/lessons/under/recorded.json instead: the log-probs of a text, and a gradient.
 */

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { inline } from './lib/inline.mjs';
import { runNode } from './lib/runNode.mjs';
import { exitOnSetupError, say, SetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

const LESSON = join(ROOT, 'demo', 'lessons', '2-losses');

/** Start of the programs below, which run in Node with WebGPU. They use the lessons' own code, and open the model like the command line. */
const OPEN = `
import { readFileSync, writeFileSync } from 'node:fs';
import { parseTrainConfig } from '${ROOT}/src/extensions/yaml/text.ts';
import { installWebGpu, readCheckpoint } from '${ROOT}/src/node.ts';
import { gsm8kToolTask } from '${ROOT}/src/tasks/gsm8k/task.ts';
import { createLocalEngine, engineSizes } from '${ROOT}/src/workers/localEngine.ts';

const [file, given] = process.argv.slice(2);
await installWebGpu();
const config = parseTrainConfig(readFileSync('configs/gsm8k-tool.yaml', 'utf8'), { source: 'gsm8k-tool.yaml', note: () => {} });
const engine = await createLocalEngine({ ...engineSizes(config), ...(await readCheckpoint('checkpoints/gsm8k-tool')) });
const generation = { config, engine, task: gsm8kToolTask() };
`;

const LOSSES = `import { UPDATES, RATE, updatesOn } from '${LESSON}/updates.ts';
${OPEN}
const rate = given === '' ? RATE : Number(given);
const signal = new AbortController().signal;
const groups = await updatesOn(generation, { problems: [0, 1], rate, signal });
writeFileSync(file, JSON.stringify({ rate, updates: UPDATES, groups }));
process.exit(0);
`;

const UNDER = join(ROOT, 'demo', 'lessons', 'under');
const TEXT = {
  problem: 'Ben had 53 toys but 8 broke. Ben packs the rest in boxes of 5. How many boxes?',
  text: '53 - 8 = 45. 45 / 5 = 9 boxes. #### 9',
};
const SCORES = `import { libraryGradient, onGpu } from '${UNDER}/kernel.ts';
import { scoreTwice } from '${UNDER}/sentence.ts';
${OPEN}
const text = ${JSON.stringify(TEXT)};
const found = await scoreTwice(generation, text);
const x = Float32Array.from(found.whole.slice(0, 8));
const dy = x.map((_, k) => (k === 0 ? 1 : 0));
const kernel = [...(await onGpu((gpu) => libraryGradient(gpu, { x, weight: x.map(() => 1), dy })))];
writeFileSync(file, JSON.stringify({ ...text, ...found, kernel }));
process.exit(0);
`;

/**
 * Bundles a program and runs it. Returns what it wrote.
 * @param {string} program
 * @param {string} rate
 * @param {Record<string, string>} env
 */
async function record(program, rate, env) {
  const folder = mkdtempSync(join(ROOT, 'node_modules', '.cache', 'lesson-')); // below node_modules, so that packages are found
  try {
    writeFileSync(join(folder, 'program.js'), program);
    const { build } = await import('vite');
    await build({
      configFile: false,
      logLevel: 'error',
      plugins: [inline()],
      build: {
        ssr: join(folder, 'program.js'),
        outDir: join(folder, 'out'),
        target: 'node20',
        rolldownOptions: { external: /^(@jax-js\/|@tensorflow\/|onnxruntime-web|fast-check)/ },
      },
    });
    const file = join(folder, 'recorded.json');
    if ((await runNode(join(folder, 'out', 'program.js'), [file, rate], { env, cwd: ROOT })) !== 0)
      throw new SetupError('The updates did not finish. Their messages are above.');
    return JSON.parse(readFileSync(file, 'utf8'));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Returns actor/pg_loss and the mean reward of the first step of the page's recorded run. */
function firstStep() {
  const packed = readFileSync(join(ROOT, 'demo', 'recorded', 'gsm8k-tool.bin'));
  const { command, commit, history } = JSON.parse(gunzipSync(packed).toString());
  const line = history.find((/** @type {Record<string, number>} */ one) => one['training/global_step'] === 1);
  return { command, commit, pgLoss: line['actor/pg_loss'], reward: line['critic/score/mean'] };
}

try {
  const { values } = parseArgs({
    options: { rate: { type: 'string' }, adapter: { type: 'string' }, under: { type: 'boolean', default: false } },
  });
  const env = setup({ dev: false, adapter: true });
  const head = {
    command: `node scripts/record-losses.mjs${values.under ? ' --under' : ''}`,
    commit: execFileSync('git', ['-C', ROOT, 'rev-parse', '--short=8', 'HEAD'], { encoding: 'utf8' }).trim(),
    adapter: values.adapter ?? 'SwiftShader',
    date: new Date().toISOString().slice(0, 10),
  };
  if (values.under) {
    const file = join(UNDER, 'recorded.json');
    const made = await record(SCORES, '', env);
    writeFileSync(file, `${JSON.stringify({ ...head, ...made })}\n`);
    say(`${file}: ${made.tokens.length} tokens`);
  } else {
    /** @type {{ groups: { tries: object[] }[] }} */
    const { groups, ...made } = await record(LOSSES, values.rate ?? '', env);
    const file = values.rate === undefined ? join(LESSON, 'recorded.json') : '/tmp/losses.json';
    const rows = groups.map((group) => JSON.stringify(group)).join(',\n');
    writeFileSync(
      file,
      `${JSON.stringify({ ...head, ...made, run: firstStep() }).slice(0, -1)},\n"groups":[\n${rows}\n]}\n`,
    );
    say(`${file}: ${groups.length} groups, ${groups.flatMap(({ tries }) => tries).length} tries`);
  }
} catch (error) {
  exitOnSetupError(error);
}
