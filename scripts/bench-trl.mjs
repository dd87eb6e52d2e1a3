/**
 * A recipe in TRL and here, one run after the other on this machine: rewards, held-out pass@1, seconds, processor time and memory.
 *   node scripts/bench-trl.mjs [--config configs/gsm8k-tool.yaml]... [--model PATH] [--seeds 1,2,3] [--steps N] [--only trl|webgrpo] [--keep]
 *   node scripts/bench-trl.mjs --setup
 * Prints a Markdown table for each config. --model replaces a model.path that is not a folder here, such as a name on the Hub. --keep stores
 * bench/results/trl/NAME.json after each run, replaces the sides that were measured, and measures set-up (packages are downloaded once).
 * --setup measures set-up alone, again, and prints its rows. Python: TRL_PYTHON, or an environment that is made once from
 * bench/peers/trl/requirements.txt.
 */

import { spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { parse } from 'yaml';
import { besideTrlTable, readLines, readOurs, readTrl } from './lib/besideTrl.mjs';
import { bundle } from './lib/bundle.mjs';
import { probe } from './lib/adapter.mjs';
import { exitOnSetupError, messageOf, say, SetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

/** @typedef {import('./lib/besideTrl.mjs').Results} Results */
/** @typedef {{ configs: string[], model: string | undefined, seeds: number[], steps: number | undefined, sides: ('trl' | 'webgrpo')[], keep: boolean, setup: boolean }} Options */

const PEER = join(ROOT, 'bench', 'peers', 'trl');
const ENVIRONMENT = join(ROOT, 'node_modules', '.cache', 'webgrpo', 'trl');
const REQUIREMENTS = join(PEER, 'requirements.txt');
/** Seconds and bytes of each side's installation, which is measured once. */
const SETUP_FILES = {
  trl: join(ENVIRONMENT, '..', 'trl-install.json'),
  webgrpo: join(ENVIRONMENT, '..', 'install.json'),
};
/** @type {('trl' | 'webgrpo')[]} */
const SIDES = ['trl', 'webgrpo'];

/** @returns {Options} */
function readOptions() {
  try {
    const { values } = parseArgs({
      options: {
        config: { type: 'string', multiple: true, default: ['configs/gsm8k-tool.yaml'] },
        model: { type: 'string' },
        seeds: { type: 'string', default: '1,2,3' },
        steps: { type: 'string' },
        only: { type: 'string' },
        keep: { type: 'boolean', default: false },
        setup: { type: 'boolean', default: false },
      },
    });
    const seeds = values.seeds.split(',').map(Number);
    if (!seeds.every((seed) => Number.isSafeInteger(seed) && seed >= 0))
      throw new Error(`--seeds is "${values.seeds}"; allowed: whole numbers. Write them with commas, such as 1,2,3.`);
    const steps = values.steps === undefined ? undefined : Number(values.steps);
    if (steps !== undefined && !(Number.isSafeInteger(steps) && steps >= 1))
      throw new Error(
        `--steps is "${values.steps}"; allowed: a whole number from 1 on. Leave it out for the config's.`,
      );
    if (values.only !== undefined && !SIDES.some((side) => side === values.only))
      throw new Error(`--only is "${values.only}"; allowed: ${SIDES.join(', ')}. Leave it out for both.`);
    const missing = values.config.find((path) => !existsSync(path));
    if (missing !== undefined)
      throw new Error(`--config is "${missing}", which does not exist. Name a training config.`);
    if (values.model !== undefined && !existsSync(values.model))
      throw new Error(`--model is "${values.model}", which does not exist. Name a model folder or a .gguf file.`);
    const sides = SIDES.filter((side) => values.only === undefined || side === values.only);
    return {
      configs: values.config.map((path) => resolve(path)),
      model: values.model && resolve(values.model),
      seeds,
      steps,
      sides,
      keep: values.keep,
      setup: values.setup,
    };
  } catch (error) {
    throw new SetupError(messageOf(error));
  }
}

/**
 * Runs a command to its end; its output goes to this process's stderr. Throws SetupError if it failed.
 * @param {string} command
 * @param {string[]} args
 * @param {{ cwd?: string, env?: Record<string, string> }} options
 */
function run(command, args, { cwd = ROOT, env = {} } = {}) {
  const { status, signal } = spawnSync(command, args, {
    cwd,
    env: { ...process.env, ...env },
    stdio: ['ignore', process.stderr.fd, process.stderr.fd],
  });
  if (status !== 0)
    throw new SetupError(`${[command, ...args].join(' ')} ended with ${signal ?? status}; see its output above.`, 1);
}

/** @param {string} folder */
function bytesIn(folder) {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return files.reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0);
}

/** Returns the Python that has TRL. Creates an environment if needed. */
function findPython() {
  const given = process.env.TRL_PYTHON;
  const python = given ? resolve(given) : join(ENVIRONMENT, 'bin', 'python');
  if (!given && !existsSync(ENVIRONMENT)) {
    say('TRL: making an environment (several gigabytes)');
    timed('trl', () => INSTALL.trl(ENVIRONMENT));
  }
  if (!hasTrl(python))
    throw new SetupError(`${python} cannot import trl. Name another by TRL_PYTHON, or remove ${ENVIRONMENT}.`, 1);
  return python;
}

/**
 * Installs the packages of a side into a folder, without a cache, so that everything is downloaded. Returns the folder of the packages.
 * @type {Record<'trl' | 'webgrpo', (folder: string) => string>}
 */
const INSTALL = {
  trl(folder) {
    run('python3', ['-m', 'venv', folder]);
    run(join(folder, 'bin', 'python'), ['-m', 'pip', 'install', '--quiet', '--no-cache-dir', '-r', REQUIREMENTS]);
    return folder;
  },
  webgrpo(folder) {
    for (const path of ['package.json', 'package-lock.json', 'scripts/package.json'])
      cpSync(join(ROOT, path), join(folder, path));
    const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--cache', join(folder, 'cache')];
    run('npm', ['ci', '--omit=dev', ...quiet], { cwd: folder });
    return join(folder, 'node_modules');
  },
};

/**
 * Times an installation, and stores its seconds and bytes.
 * @param {'trl' | 'webgrpo'} side
 * @param {() => string} install
 */
function timed(side, install) {
  const started = performance.now();
  const folder = install();
  const measured = { seconds: (performance.now() - started) / 1000, bytes: bytesIn(folder) };
  mkdirSync(join(SETUP_FILES[side], '..'), { recursive: true });
  writeFileSync(SETUP_FILES[side], JSON.stringify(measured));
  return measured;
}

/**
 * Returns the seconds and bytes of a side's set-up, by an installation into a new folder if none was measured yet.
 * @param {'trl' | 'webgrpo'} side
 * @param {boolean} again
 * @returns {{ seconds: number, bytes: number }}
 */
function measureSetup(side, again = false) {
  if (!again && existsSync(SETUP_FILES[side])) return JSON.parse(readFileSync(SETUP_FILES[side], 'utf8'));
  const folder = mkdtempSync(join(tmpdir(), `${side}-install-`));
  try {
    say(`${side}: installing into a new folder, to measure the set-up`);
    return timed(side, () => INSTALL[side](folder));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const hasTrl = (/** @type {string} */ python) => spawnSync(python, ['-c', 'import trl, peft']).status === 0;

/** @param {string} python */
const versionOf = (python) =>
  spawnSync(python, ['-c', 'import trl; print(trl.__version__)'], { encoding: 'utf8' }).stdout.trim();

/** @param {string} folder */
const usageIn = (folder) => JSON.parse(readFileSync(join(folder, 'usage.json'), 'utf8'));
const readLog = (/** @type {string} */ path) => readLines(readFileSync(path, 'utf8'));

/**
 * @param {string} config
 * @param {Options} options
 */
async function measure(config, { model: other, seeds, steps: asked, sides, keep }) {
  const { name, model, data, actor, trainer } = parse(readFileSync(config, 'utf8'));
  const path = existsSync(join(ROOT, model.path)) ? model.path : (other ?? model.path);
  const steps = asked ?? trainer.totalTrainingSteps;
  const updates = (data.trainBatchSize / actor.ppoMiniBatchSize) * (actor.ppoEpochs ?? 1);
  const python = findPython();
  const env = setup({ dev: true, adapter: true });
  const cli = ['--no-warnings', join(await bundle(ROOT), 'bin.js')];
  const names = { trl: `TRL ${versionOf(python)}`, webgrpo: `webgrpo, ${probe(env)?.name}` };
  const file = join(ROOT, 'bench', 'results', 'trl', `${name}.json`);
  /** @type {Results} */
  const results = keep && existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : { name, steps, sides: {} };
  if (results.steps !== steps)
    throw new SetupError(`${file} is of ${results.steps} steps, not of ${steps}. Remove it, or leave --keep out.`);
  for (const side of sides) results.sides[names[side]] = { setup: keep ? measureSetup(side) : null, runs: [] };
  const folder = mkdtempSync(join(tmpdir(), 'webgrpo-beside-trl-'));
  /** @param {number} seed */
  const settings = (seed) => [
    `seed=${seed}`,
    `model.path=${path}`,
    `trainer.totalTrainingSteps=${steps}`,
    ...[`trainer.testFreq=${steps}`, 'trainer.valBeforeTrain=true', 'trainer.saveFreq=0'],
  ];
  /** @type {Record<'trl' | 'webgrpo', (seed: number, at: string) => Omit<import('./lib/besideTrl.mjs').Run, 'usage'>>} */
  const runs = {
    trl(seed, at) {
      const out = join(at, 'run');
      run(process.execPath, [...cli, 'export', 'trl', path, '--config', config, '--out', out, ...settings(seed)]);
      const timed = [python, join(PEER, 'timed.py'), join(at, 'log.jsonl')];
      const offline = { HF_HUB_OFFLINE: '1' };
      run(python, [join(PEER, 'usage.py'), join(at, 'usage.json'), ...timed], { cwd: out, env: offline });
      return readTrl(readLog(join(at, 'log.jsonl')), { seed, steps, updates });
    },
    webgrpo(seed, at) {
      const more = ['name=run', `trainer.defaultLocalDir=${at}`];
      const train = [process.execPath, ...cli, 'train', config, ...settings(seed), ...more];
      run(python, [join(PEER, 'usage.py'), join(at, 'usage.json'), ...train], { env });
      return readOurs(readLog(join(at, 'run', 'metrics.jsonl')), { seed, steps });
    },
  };
  try {
    for (const seed of seeds)
      for (const side of sides) {
        const at = join(folder, `${side}-${seed}`);
        mkdirSync(at);
        say(`${names[side]}: seed ${seed}, ${steps} steps`);
        const measured = runs[side](seed, at);
        results.sides[names[side]].runs.push({ ...measured, usage: usageIn(at) });
        if (!keep) continue;
        mkdirSync(join(file, '..'), { recursive: true });
        writeFileSync(file, `${JSON.stringify(results, null, 2)}\n`);
      }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  return results;
}

try {
  const options = readOptions();
  if (options.setup) {
    const sides = Object.fromEntries(
      options.sides.map((side) => [side, { setup: measureSetup(side, true), runs: [] }]),
    );
    process.stdout.write(`${besideTrlTable({ name: 'set-up', steps: 0, sides })}\n`);
  } else
    for (const config of options.configs) process.stdout.write(`${besideTrlTable(await measure(config, options))}\n\n`);
} catch (error) {
  exitOnSetupError(error);
}
