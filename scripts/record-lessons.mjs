/**
 * `node scripts/record-lessons.mjs` writes the data of the page's lessons, demo/lessons/1-groups/recorded.json. It trains one step of the
 * default recipe by the command line (a minute on a CPU), and takes the curves from the run that scripts/record.mjs recorded. `--from FOLDER`
 * uses a finished run of the command below.
 */

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { runNode } from './lib/runNode.mjs';
import { exitOnSetupError, say, SetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

/** @typedef {import('../src/runs/rollouts.ts').LoggedRollout} LoggedRollout */

const FILE = join(ROOT, 'demo', 'lessons', '1-groups', 'recorded.json');
const SETTINGS = ['trainer.totalTrainingSteps=1', 'trainer.logRollouts=128', 'trainer.valBeforeTrain=false'];

/** Trains into a new folder and returns it. */
async function train() {
  const parent = mkdtempSync(join(tmpdir(), 'webgrpo-lessons-'));
  const args = ['train', join(ROOT, 'configs', 'gsm8k-tool.yaml'), 'name=lesson', ...SETTINGS];
  const program = join(ROOT, 'scripts', 'webgrpo.mjs');
  const code = await runNode(program, [...args, `trainer.defaultLocalDir=${parent}`], { cwd: ROOT });
  if (code !== 0) throw new SetupError('The run did not finish. Its messages are above.');
  return { folder: join(parent, 'lesson'), remove: () => rmSync(parent, { recursive: true }) };
}

/**
 * Returns the tries of each group, with their common fields stored once.
 * @param {LoggedRollout[]} tries
 */
function groupsOf(tries) {
  return [...new Set(tries.map(({ group }) => group))].map((number) => {
    const own = tries.filter(({ group }) => group === number);
    const [{ problem, answer, messages, promptMessages }] = own;
    return {
      problem,
      answer,
      prompt: messages.slice(0, promptMessages),
      tries: own.map((one) => ({
        messages: one.messages.slice(promptMessages),
        score: one.score,
        acc: one.acc,
        stopReason: one.stopReason,
        numTurns: one.numTurns,
        numToolCalls: one.numToolCalls,
        responseTokens: one.responseTokens,
        advantage: one.advantage,
        extra: one.extra,
      })),
    };
  });
}

/** Returns mean reward and share of groups with equal rewards at each step of the page's recorded run. */
function recordedRun() {
  const packed = readFileSync(join(ROOT, 'demo', 'recorded', 'gsm8k-tool.bin'));
  /** @type {{ command: string, commit: string, history: Record<string, number>[] }} */
  const { command, commit, history } = JSON.parse(gunzipSync(packed).toString());
  const steps = history
    .filter((line) => 'frac_reward_zero_std' in line)
    .map((line) => [line['training/global_step'], line['critic/score/mean'], line['frac_reward_zero_std']]);
  return { command, commit, steps };
}

try {
  const { values } = parseArgs({ options: { from: { type: 'string' }, adapter: { type: 'string' } } });
  setup({ dev: false, adapter: true });
  const { folder, remove } = values.from ? { folder: values.from, remove: () => {} } : await train();
  const lines = join(folder, 'rollouts', 'step-1.jsonl');
  /** @type {LoggedRollout[]} */
  const tries = readFileSync(lines, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));
  const { groups, run, ...about } = {
    command: `webgrpo train configs/gsm8k-tool.yaml ${SETTINGS.join(' ')}`,
    commit: execFileSync('git', ['-C', ROOT, 'rev-parse', '--short=8', 'HEAD'], { encoding: 'utf8' }).trim(),
    adapter: values.adapter ?? 'SwiftShader',
    date: statSync(lines).mtime.toISOString().slice(0, 10),
    groups: groupsOf(tries),
    run: recordedRun(),
  };
  const rows = groups.map((group) => JSON.stringify(group)).join(',\n');
  const head = JSON.stringify(about).slice(0, -1);
  writeFileSync(FILE, `${head},\n"run":${JSON.stringify(run)},\n"groups":[\n${rows}\n]}\n`);
  say(`${FILE}: ${groups.length} groups, ${tries.length} tries, ${run.steps.length} steps`);
  remove();
} catch (error) {
  exitOnSetupError(error);
}
