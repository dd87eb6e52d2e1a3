/**
 * Trains the runs that test/unit/doctor.test.ts reads, and stores them in test/fixtures/doctor/: metrics rounded to four digits, and
 * some samples of the last steps. The run folders stay in runs/faults/, and a complete run is not trained again. `npm run build` must have
 * written dist/lib.
 *
 *     node scripts/record-faults.mjs [NAME ...]
 */

import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';

const STORED = 'test/fixtures/doctor';
const FOLDER = 'runs/faults';
const TASK = `${STORED}/faultyTask.js`;
/** Metrics that are not stored because no rule of doctor reads them: times, and statistics that follow from stored ones. */
const DROPPED =
  /^(timing|perf|prompt_length|rollout_corr|fully_async|critic\/(returns|rewards|advantages)|reward\/|training\/off_policy|trainer|rollouter)|\/(p10|p90|std|valid|corr)$|num_turns/;
/** Number of last steps whose samples are stored. SAMPLES: number of stored samples per step. */
const STEPS = 3;
const SAMPLES = 4;
/** Maximum number of characters that are stored of a message. */
const TEXT = 60;

const PAST = 'configs/past-tense-smollm2-135m.yaml';

/** @param {object} options @returns {string} */
const task = (options) => `task={module: ${TASK}, options: ${JSON.stringify(options)}}`;

/** Settings and flags of each run. Names start with the cause that doctor must find. @type {Record<string, string[]>} */
const RUNS = {
  'not-finite': ['trainer.totalTrainingSteps=4', 'actor.optim.lr=1e20', 'actor.gradClip=0'],
  'probabilities-differ': [
    'trainer.totalTrainingSteps=6',
    '--import',
    `${STORED}/samplesColder.js`,
    'rollout.agent.defaultAgentLoop=colder',
  ],
  'rate-too-high': ['trainer.totalTrainingSteps=10', 'trainer.testFreq=5', 'actor.optim.lr=9e-3'],
  'rate-too-high-slowly': ['trainer.totalTrainingSteps=16', 'actor.optim.lr=3e-3'],
  'tool-calls-fail': ['trainer.totalTrainingSteps=8', task({ broken: true })],
  'no-spread': ['trainer.totalTrainingSteps=5', 'rollout.topK=1'],
  'reward-never': ['trainer.totalTrainingSteps=5', task({ answer: 0 })],
  'reward-always': ['trainer.totalTrainingSteps=5', task({ answer: 0, base: 1 })],
  'kl-pulls-back': ['trainer.totalTrainingSteps=12', 'actor.klLossCoef=10'],
  'rate-too-low': ['trainer.totalTrainingSteps=12', 'actor.optim.lr=1e-7'],
  truncated: ['trainer.totalTrainingSteps=10', 'data.maxResponseLength=24'],
  'entropy-collapsed': ['trainer.totalTrainingSteps=8', 'actor.entropyCoeff=-100', 'actor.optim.lr=1e-3'],
  'held-out-falls': ['trainer.totalTrainingSteps=12', 'trainer.testFreq=4', task({ answer: 0, token: -0.02 })],
  // Evaluates only at the end. Otherwise doctor would report first that held-out problems are solved less often.
  longer: [
    ...['configs/gsm8k-tool.yaml', 'trainer.totalTrainingSteps=28', 'trainer.valBeforeTrain=false'],
    ...['trainer.testFreq=0', 'data.valMaxSamples=64', task({ answer: 0, call: 0.2 })],
  ],
  clipped: [
    ...['trainer.totalTrainingSteps=8', 'actor.optim.lr=5e-5', 'actor.ppoEpochs=6'],
    ...['actor.clipRatioLow=1e-6', 'actor.clipRatioHigh=1e-6'],
  ],
  'sound-1': ['trainer.totalTrainingSteps=6'],
  'sound-2': ['trainer.totalTrainingSteps=12', 'trainer.testFreq=6', 'seed=2'],
  'sound-gspo': ['trainer.totalTrainingSteps=12', 'trainer.testFreq=6', 'algorithm.name=gspo'],
  'sound-entropy-bonus': ['trainer.totalTrainingSteps=12', 'actor.entropyCoeff=0.1'],
  'sound-async': ['trainer.totalTrainingSteps=12', 'trainer.testFreq=6', 'seed=4', 'trainer.pipeline=one-step-off'],
  // Unchanged recipes, without the settings of SMALL. Recipe PAST (past tense) downloads SmolLM2.
  'sound-fully-async': ['configs/gsm8k-tool.yaml', 'trainer.pipeline=fully-async'],
  'sound-past-1': [PAST, 'seed=1'],
  'sound-past-2': [PAST, 'seed=2'],
  'sound-past-3': [PAST, 'seed=3'],
};
const SMALL = ['data.trainBatchSize=8', 'actor.ppoMiniBatchSize=4', 'data.valMaxSamples=64', 'trainer.testFreq=0'];

const words = process.argv.slice(2);
for (const name of words.length > 0 ? words : Object.keys(RUNS)) {
  const folder = `${FOLDER}/${name}`;
  const [config, ...settings] = RUNS[name][0].startsWith('configs/')
    ? RUNS[name]
    : ['configs/gsm8k-tool.yaml', ...SMALL, ...RUNS[name]];
  const args = ['train', config, ...settings, `name=${name}`, `trainer.defaultLocalDir=${FOLDER}`];
  if (!existsSync(`${folder}/report.html`))
    spawnSync(process.execPath, ['scripts/webgrpo.mjs', ...args], { stdio: 'inherit' });
  writeFileSync(`${STORED}/${name}.json`, `${stored(folder, config, settings)}\n`);
}

/** Returns a run's metrics as JSON, one line per metric. @param {string} folder @param {string} config @param {string[]} settings */
function stored(folder, config, settings) {
  const lines = linesOf(`${folder}/metrics.jsonl`);
  const names = [...new Set(lines.flatMap((line) => Object.keys(line)))].filter((name) => !DROPPED.test(name));
  const metrics = names.map(
    (name) => `    ${JSON.stringify(name)}: ${JSON.stringify(lines.map((line) => short(line[name])))}`,
  );
  const steps = lines.flatMap((line) => line['training/global_step'] ?? []).slice(-STEPS);
  const files = steps.map((step) => `${folder}/rollouts/step-${step}.jsonl`).filter((file) => existsSync(file));
  const samples = files
    .flatMap((file) => linesOf(file).slice(0, SAMPLES))
    .map((sample) => JSON.stringify(shortSample(sample)));
  const overrides = settings.filter((word) => /^[\w.]+=/.test(word));
  return [
    `{\n  "config": ${JSON.stringify(config)},\n  "overrides": ${JSON.stringify(overrides)},\n  "metrics": {`,
    `${metrics.join(',\n')}\n  },\n  "samples": [\n    ${samples.join(',\n    ')}\n  ]\n}`,
  ].join('\n');
}

/** @param {string} file @returns {Record<string, number | null>[]} */
function linesOf(file) {
  const text = readFileSync(file, 'utf8').trim();
  return text.split('\n').map((line) => JSON.parse(line));
}

/** Returns the parts of a sample that a rule of doctor can read. @param {any} sample */
function shortSample({ step, group, problem, promptMessages, messages, score, stopReason }) {
  const texts = messages.map((/** @type {any} */ { role, content }) => ({ role, content: content.slice(0, TEXT) }));
  return { step, group, problem, promptMessages: 0, messages: texts.slice(promptMessages), score, stopReason };
}

/**
 * Rounds to four digits. null stands for a value that is not finite, and "" for an absent value.
 * @param {number | null | undefined} value
 */
function short(value) {
  return value === undefined ? '' : value === null ? null : Number(value.toPrecision(4));
}
