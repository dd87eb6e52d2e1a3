/**
 * `node scripts/record-cheats.mjs` writes demo/lessons/4-tools/recorded.json: runs whose reward is cheated, a group of games, and tries
 * with tool calls from the page's recorded run. It trains three seeds of each reward by the command line (some minutes a run on a CPU).
 * `--from FOLDER` uses finished runs of the command below. Runs that the folder lacks stay as they are in the file.
 */

import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { runNode } from './lib/runNode.mjs';
import { exitOnSetupError, say, SetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

/** @typedef {import('../src/runs/rollouts.ts').LoggedRollout} LoggedRollout */

const LESSON = join(ROOT, 'demo', 'lessons', '4-tools');
/**
 * Rewards of cheats.js that are recorded, with the number of steps of each run and of problems per step.
 * @type {Record<string, { steps: number, problems: number }>}
 */
const REWARDS = {
  form: { steps: 30, problems: 8 },
  calls: { steps: 40, problems: 16 },
  length: { steps: 30, problems: 8 },
};
/** Seeds of each reward. Curves and tries are stored of the first one only. */
const SEEDS = [1, 2, 3];
/** @param {string} pays */
const settingsOf = (pays) => {
  const { steps, problems } = REWARDS[pays];
  return [
    `task={module: demo/lessons/4-tools/cheats.js, options: {pays: ${pays}}}`,
    ...[`data.trainBatchSize=${problems}`, `actor.ppoMiniBatchSize=${problems / 2}`, 'data.valMaxSamples=64'],
    ...[`trainer.totalTrainingSteps=${steps}`, 'trainer.testFreq=10', 'trainer.logRollouts=16'],
  ];
};
/** Arguments of the run that plays one step of games. GAME_GROUP: number of the group that is stored. */
const GAME = [
  ...['configs/tic-tac-toe.yaml', 'task={name: tic-tac-toe, options: {illegalMoves: 2}}', 'rollout.n=8'],
  ...['rollout.multiTurn.maxAssistantTurns=8', 'data.maxResponseLength=200', 'trainer.totalTrainingSteps=1'],
  ...['trainer.logRollouts=128', 'trainer.valBeforeTrain=false'],
];
const GAME_GROUP = 8;
/** Number of tries of a step that are stored. */
const TRIES = 4;
/** The recorded run's tries with tool calls are taken from step TOOL_STEP on: TOOL_TRIES tries, one per problem. */
const [TOOL_STEP, TOOL_TRIES] = [73, 8];

/** @param {string} folder */
async function train(folder) {
  // cheats.js imports the built library.
  if ((await runNode(join(ROOT, 'scripts', 'build.mjs'), [], { cwd: ROOT })) !== 0)
    throw new SetupError('The build did not finish. Its messages are above.');
  const cheats = SEEDS.flatMap((seed) =>
    Object.keys(REWARDS).map((pays) => [
      ...[`${pays}-${seed}`, 'configs/gsm8k-tool.yaml'],
      ...[...settingsOf(pays), `seed=${seed}`],
    ]),
  );
  for (const [name, ...settings] of [...cheats, ['ttt', ...GAME]]) {
    const args = ['train', ...settings, `name=${name}`, `trainer.defaultLocalDir=${folder}`];
    const code = await runNode(join(ROOT, 'scripts', 'webgrpo.mjs'), args, { cwd: ROOT });
    if (code !== 0) throw new SetupError(`The run "${name}" did not finish. Its messages are above.`);
  }
}

/** @param {string} file */
const linesOf = (file) =>
  readFileSync(file, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));

const rounded = (/** @type {number} */ value) => Number(value.toFixed(4));

/** Returns the rewards and held-out shares of a run. @param {string} folder */
function curvesOf(folder) {
  const lines = linesOf(join(folder, 'metrics.jsonl'));
  const steps = lines
    .filter((line) => 'critic/acc/mean' in line)
    .map((line) => [line['training/global_step'], rounded(line['critic/score/mean']), line['critic/acc/mean']]);
  const heldOut = lines.flatMap((line) => {
    const name = Object.keys(line).find((key) => key.endsWith('acc/mean@1'));
    return name ? [[line['training/global_step'], line[name]]] : [];
  });
  return { steps, heldOut };
}

/** @param {string} folder of the run with the first seed @param {string} pays @param {string} commit */
function runOf(folder, pays, commit) {
  const shown = [1, 2, 3, 5, 8, 10, 12, 15, 20, 24, 30, 35, 40].filter((step) => step <= REWARDS[pays].steps);
  /** @type {LoggedRollout[]} */
  const tries = shown.flatMap((step) => linesOf(join(folder, 'rollouts', `step-${step}.jsonl`)).slice(0, TRIES));
  const [task, ...settings] = settingsOf(pays);
  const command = `webgrpo train configs/gsm8k-tool.yaml "${task}" ${settings.join(' ')}`;
  return { pays, command, commit, ...curvesOf(folder), tries };
}

/** @param {string} folder @param {number} seed @param {string} commit */
function otherSeed(folder, seed, commit) {
  const { steps, heldOut } = curvesOf(folder);
  return { seed, commit, paid: [steps[0][1], steps.at(-1)?.[1]], heldOut };
}

/** Returns a group of games: the first board, then the moves and boards of each try. @param {string} folder @param {string} commit */
function gameOf(folder, commit) {
  /** @type {LoggedRollout[]} */
  const all = linesOf(join(folder, 'ttt', 'rollouts', 'step-1.jsonl'));
  const group = all.filter((one) => one.group === GAME_GROUP);
  const tries = group.map(({ turnRewards, messages, promptMessages }) => ({
    turnRewards,
    texts: messages.slice(promptMessages).map(({ content }) => content),
  }));
  const command = `webgrpo train ${GAME.map((word) => (word.includes(' ') ? `"${word}"` : word)).join(' ')}`;
  return { command, commit, first: group[0].messages[0].content, tries };
}

/** Returns one try with a call for each of some problems near the end of the page's recorded run. */
function toolTries() {
  const packed = readFileSync(join(ROOT, 'demo', 'recorded', 'gsm8k-tool.bin'));
  /** @type {{ command: string, commit: string, tries: LoggedRollout[] }} */
  const { command, commit, tries } = JSON.parse(gunzipSync(packed).toString());
  const late = tries.filter(({ step, numToolCalls }) => step >= TOOL_STEP && numToolCalls > 0);
  const first = late.filter(({ problem }, i) => late.findIndex((one) => one.problem === problem) === i);
  return { command, commit, tries: first.slice(0, TOOL_TRIES) };
}

try {
  const string = /** @type {const} */ ({ type: 'string' });
  const { values } = parseArgs({ options: { from: string, adapter: string } });
  setup({ dev: false, adapter: true });
  const folder = values.from ?? mkdtempSync(join(tmpdir(), 'webgrpo-cheats-'));
  if (values.from === undefined) await train(folder);
  const file = join(LESSON, 'recorded.json');
  const commit = execFileSync('git', ['-C', ROOT, 'rev-parse', '--short=8', 'HEAD'], { encoding: 'utf8' }).trim();
  const old = JSON.parse(readFileSync(file, 'utf8'));
  /**
   * Returns the record of a finished run, or `kept` if the run is missing.
   * @type {<T>(name: string, record: (folder: string) => T, kept: T) => T}
   */
  const recordedOr = (name, record, kept) =>
    existsSync(join(folder, name, 'metrics.jsonl')) ? record(join(folder, name)) : kept;
  const runs = Object.keys(REWARDS).map((pays) => {
    const { otherSeeds = [], ...kept } =
      old.runs.find((/** @type {{ pays: string }} */ run) => run.pays === pays) ?? {};
    const { tries, ...run } = recordedOr(`${pays}-${SEEDS[0]}`, (place) => runOf(place, pays, commit), kept);
    const others = SEEDS.slice(1).map((seed) =>
      recordedOr(
        `${pays}-${seed}`,
        (place) => otherSeed(place, seed, commit),
        otherSeeds.find((/** @type {{ seed: number }} */ one) => one.seed === seed),
      ),
    );
    return { ...run, otherSeeds: others, tries };
  });
  const head = {
    adapter: values.adapter ?? 'SwiftShader',
    date: new Date().toISOString().slice(0, 10),
    tools: toolTries(),
    game: recordedOr('ttt', () => gameOf(folder, commit), old.game),
  };
  writeFileSync(
    file,
    `${JSON.stringify(head).slice(0, -1)},\n"runs":[\n${runs.map((run) => JSON.stringify(run)).join(',\n')}\n]}\n`,
  );
  say(`${file}: ${runs.map(({ pays, steps }) => `${pays}, ${steps.length} steps`).join('; ')}`);
  if (values.from === undefined) rmSync(folder, { recursive: true });
} catch (error) {
  exitOnSetupError(error);
}
