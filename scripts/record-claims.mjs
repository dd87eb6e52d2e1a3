/**
 * `node scripts/record-claims.mjs` writes demo/lessons/6-claims/recorded.json: the outcomes of 32 tries at each of 256 held-out problems,
 * by the shipped model and after 20 steps of the default recipe with seeds 1 to 3. It takes some minutes per seed on a CPU. Results that
 * are already in the folder (`--folder`, default runs/lesson-6) are not computed again.
 */

import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { runNode } from './lib/runNode.mjs';
import { exitOnSetupError, say, SetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

const FILE = join(ROOT, 'demo', 'lessons', '6-claims', 'recorded.json');
const CONFIG = join('configs', 'gsm8k-tool.yaml');
const SEEDS = [1, 2, 3];
const STEPS = 20;

/** @param {string[]} args */
async function webgrpo(args) {
  const code = await runNode(join(ROOT, 'scripts', 'webgrpo.mjs'), args, { cwd: ROOT });
  if (code !== 0) throw new SetupError('The command did not finish. Its messages are above.');
}

/**
 * Returns which of a model's 32 tries at each held-out problem are right, as text: eight hexadecimal digits per problem. Trains the model
 * (unless it is the shipped one) and evaluates it first if the folder has no result.
 * @param {string} folder
 * @param {number} [seed] default: the shipped model
 */
async function outcomesOf(folder, seed) {
  const name = seed ? `seed-${seed}` : 'start';
  const file = join(folder, `${name}.json`);
  if (seed && !existsSync(join(folder, name))) {
    const settings = [
      `name=${name}`,
      `seed=${seed}`,
      `trainer.totalTrainingSteps=${STEPS}`,
      'trainer.valBeforeTrain=false',
    ];
    await webgrpo(['train', CONFIG, ...settings, `trainer.defaultLocalDir=${folder}`]);
  }
  const model = seed ? ['--model', join(folder, name)] : [];
  if (!existsSync(file)) await webgrpo(['eval', CONFIG, ...model, '--outcomes', file, 'rollout.valKwargs.n=32']);
  /** @type {{ tries: number[][] }} */
  const { tries } = JSON.parse(readFileSync(file, 'utf8'));
  return tries.map((outcomes) => Number.parseInt(outcomes.join(''), 2).toString(16).padStart(8, '0')).join('');
}

try {
  const { values } = parseArgs({
    options: { folder: { type: 'string', default: join('runs', 'lesson-6') }, adapter: { type: 'string' } },
  });
  setup({ dev: false, adapter: true });
  const stages = [{ steps: 0, seed: 0, outcomes: await outcomesOf(values.folder) }];
  for (const seed of SEEDS) stages.push({ steps: STEPS, seed, outcomes: await outcomesOf(values.folder, seed) });
  const about = {
    command: `webgrpo eval ${CONFIG} --model RUN --outcomes FILE rollout.valKwargs.n=32`,
    commit: execFileSync('git', ['-C', ROOT, 'rev-parse', '--short=8', 'HEAD'], { encoding: 'utf8' }).trim(),
    adapter: values.adapter ?? 'SwiftShader',
    date: new Date().toISOString().slice(0, 10),
  };
  const rows = stages.map((stage) => JSON.stringify(stage)).join(',\n');
  writeFileSync(FILE, `${JSON.stringify(about).slice(0, -1)},\n"stages":[\n${rows}\n]}\n`);
  say(`${FILE}: ${stages.length} models`);
} catch (error) {
  exitOnSetupError(error);
}
