/**
 * `node scripts/record.mjs` trains the default recipe by the command line (minutes on a CPU) and writes demo/recorded/gsm8k-tool.bin. The
 * page plays it if it cannot train. `--from FOLDER` uses a finished run of `train configs/gsm8k-tool.yaml trainer.logRollouts=16`.
 */

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { runNode } from './lib/runNode.mjs';
import { exitOnSetupError, say, SetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

const FILE = join(ROOT, 'demo', 'recorded', 'gsm8k-tool.bin');
/** Number of recorded tries: two problems of eight tries each. */
const TRIES = 16;
const COMMAND = `webgrpo train configs/gsm8k-tool.yaml trainer.logRollouts=${TRIES}`;

/** Trains into a new folder and returns it. */
async function train() {
  const parent = mkdtempSync(join(tmpdir(), 'webgrpo-record-'));
  const program = join(ROOT, 'scripts', 'webgrpo.mjs');
  const args = ['train', join(ROOT, 'configs', 'gsm8k-tool.yaml'), 'name=recorded', `trainer.logRollouts=${TRIES}`];
  const code = await runNode(program, [...args, `trainer.defaultLocalDir=${parent}`], { cwd: ROOT });
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
  const { values } = parseArgs({ options: { from: { type: 'string' }, adapter: { type: 'string' } } });
  setup({ dev: false, adapter: true });
  const { folder, remove } = values.from ? { folder: values.from, remove: () => {} } : await train();
  const steps = readdirSync(join(folder, 'rollouts'))
    .map((file) => Number(/\d+/.exec(file)?.[0]))
    .sort((a, b) => a - b);
  const git = (/** @type {string[]} */ ...args) =>
    execFileSync('git', ['-C', ROOT, ...args], { encoding: 'utf8' }).trim();
  const recording = {
    command: COMMAND,
    commit: git('rev-parse', '--short', 'HEAD'),
    adapter: values.adapter ?? 'SwiftShader',
    date: statSync(join(folder, 'metrics.jsonl')).mtime.toISOString().slice(0, 10),
    // The path of the run is private.
    config: readFileSync(join(folder, 'config.yaml'), 'utf8').replace(/^ +defaultLocalDir: .*\n/m, ''),
    history: linesOf(join(folder, 'metrics.jsonl')).map(withoutTimes),
    tries: steps.flatMap((step) => linesOf(join(folder, 'rollouts', `step-${step}.jsonl`))),
  };
  const packed = gzipSync(JSON.stringify(recording), { level: 9 });
  writeFileSync(FILE, packed);
  say(
    `${FILE}: ${recording.history.length} lines, ${recording.tries.length} tries, ${(packed.length / 1000).toFixed(0)} kB`,
  );
  remove();
} catch (error) {
  exitOnSetupError(error);
}
