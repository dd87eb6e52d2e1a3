/**
 * `node scripts/record.mjs` trains the default recipe by the command line (minutes on a CPU) and writes demo/recorded/gsm8k-tool.bin. The
 * page plays it if it cannot train. `--recipe NAME` records another recipe, with `--model FILE` on that model (an hour for SmolLM2-135M).
 * `--from FOLDER` records a finished run of the same command instead of training; `--commit ID` and `--adapter NAME` say where it was made.
 */

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { runNode } from './lib/runNode.mjs';
import { exitOnSetupError, say, SetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

const DEFAULT = 'gsm8k-tool';
/** Number of recorded tries of the default recipe: two problems with eight tries each. */
const TRIES = 16;

/** Returns the arguments of the recorded run after `webgrpo`. @param {string} recipe @param {string | undefined} model */
const commandOf = (recipe, model) => [
  'train',
  `configs/${recipe}.yaml`,
  ...(model === undefined ? [] : [`model.path=${model}`]),
  ...(recipe === DEFAULT ? [`trainer.logRollouts=${TRIES}`] : []), // else the default: one problem of eight tries
];

/** Trains into a new folder and returns it. @param {string[]} command */
async function train(command) {
  const parent = mkdtempSync(join(tmpdir(), 'webgrpo-record-'));
  const program = join(ROOT, 'scripts', 'webgrpo.mjs');
  const args = [...command, 'name=recorded', `trainer.defaultLocalDir=${parent}`];
  const code = await runNode(program, args, { cwd: ROOT });
  if (code !== 0) throw new SetupError('The run did not finish. Its messages are above.');
  return { folder: join(parent, 'recorded'), remove: () => rmSync(parent, { recursive: true }) };
}

/** @param {string} file */
const linesOf = (file) =>
  readFileSync(file, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));

/** Removes timings, because the recording machine says nothing about the visitor's. */
const withoutTimes = (/** @type {Record<string, number>} */ line) =>
  Object.fromEntries(Object.entries(line).filter(([name]) => !/^(timing|perf\/(?!trained_tokens))/.test(name)));

try {
  const text = /** @type {const} */ ({ type: 'string' });
  const { values } = parseArgs({ options: { recipe: text, model: text, from: text, adapter: text, commit: text } });
  const { recipe = DEFAULT, model, from } = values;
  setup({ dev: false, adapter: true });
  const { folder, remove } = from ? { folder: from, remove: () => {} } : await train(commandOf(recipe, model));
  const steps = readdirSync(join(folder, 'rollouts'))
    .map((file) => Number(/\d+/.exec(file)?.[0]))
    .sort((a, b) => a - b);
  const git = (/** @type {string[]} */ ...args) =>
    execFileSync('git', ['-C', ROOT, ...args], { encoding: 'utf8' }).trim();
  const recording = {
    command: `webgrpo ${commandOf(recipe, model && basename(model)).join(' ')}`,
    commit: values.commit ?? git('rev-parse', '--short', 'HEAD'),
    adapter: values.adapter ?? 'SwiftShader',
    date: statSync(join(folder, 'metrics.jsonl')).mtime.toISOString().slice(0, 10),
    // Paths of the recording machine are private.
    config: readFileSync(join(folder, 'config.yaml'), 'utf8')
      .replace(/^ +defaultLocalDir: .*\n/m, '')
      .replace(/^( +path: )\/.*\//m, '$1'),
    history: linesOf(join(folder, 'metrics.jsonl')).map(withoutTimes),
    tries: steps.flatMap((step) => linesOf(join(folder, 'rollouts', `step-${step}.jsonl`))),
  };
  const packed = gzipSync(JSON.stringify(recording), { level: 9 });
  const file = join(ROOT, 'demo', 'recorded', `${recipe}.bin`);
  writeFileSync(file, packed);
  say(
    `${file}: ${recording.history.length} lines, ${recording.tries.length} tries, ${(packed.length / 1000).toFixed(0)} kB`,
  );
  remove();
} catch (error) {
  exitOnSetupError(error);
}
