// Trains with one fault: install webgrpo (its tarball: README) and webgpu, then node twin.js NAME [STEPS]
import { readFileSync } from 'node:fs';
import {
  computeAdvantages,
  createLocalEngine,
  engineSizes,
  gsm8kToolTask,
  GrpoTrainer,
  registerAgentLoop,
} from 'webgrpo';
import { gsm8kTool } from 'webgrpo/checkpoints';
import { installWebGpu, readCheckpoint } from 'webgrpo/node';
import { parseTrainConfig } from 'webgrpo/yaml';

const task = gsm8kToolTask();

// Draws at temperature 0.7. The trainer still computes probabilities at 1.
registerAgentLoop('colder', async (sample) => {
  Object.assign(sample.input.sampling, { temperature: 0.7 });
  for (;;) {
    const turn = await sample.generate();
    if (turn.stop) return turn.stop;
    if (turn.calls.length === 0) return 'completed';
    const stop = await sample.callTools(turn.calls);
    if (stop) return stop;
  }
});

/**
 * Computes the right advantages, and hands them to the wrong tries: rewards came group by group, tries problem by problem.
 * @type {import('webgrpo').GrpoTrainerOptions['advantage']}
 */
const mixed = (inputs) => {
  const right = computeAdvantages('grpo', inputs).map(([first]) => first);
  const groups = new Set(Array.from(inputs.groups)).size;
  const other = right.map((_, i) => right[(i % groups) * (right.length / groups) + Math.floor(i / groups)]);
  return inputs.masks.map(({ length }, i) => Array(length).fill(other[i]));
};

/**
 * Pays 1 for a right answer, and takes 0.05 off for each token. A right try has more than 30 of them.
 * @type {import('webgrpo').Task['reward']}
 */
async function priced(sample) {
  const { acc } = await task.reward(sample);
  return { score: acc - 0.05 * sample.responseTokens, acc };
}

/**
 * Settings or parts of the trainer, by the name of the fault.
 * @type {Record<string, { settings?: string[] } & Partial<import('webgrpo').GrpoTrainerOptions>>}
 */
export const FAULTS = {
  colder: { settings: ['rollout.agent.defaultAgentLoop=colder'] },
  cut: { settings: ['data.maxResponseLength=24'] },
  mixed: { advantage: mixed },
  none: { settings: ['seed=4'] },
  price: { task: { ...task, reward: priced } },
  rate: { settings: ['actor.optim.lr=9e-3'] },
};

/**
 * Trains the default recipe with a fault.
 * @param {string} name
 * @param {string[]} settings
 * @param {import('webgrpo').GrpoTrainerOptions['onStep']} onStep
 */
export async function train(name, settings, onStep) {
  const { settings: own = [], ...parts } = FAULTS[name];
  const file = new URL(import.meta.resolve('webgrpo/configs/gsm8k-tool.yaml'));
  const overrides = [...settings, ...own];
  const config = parseTrainConfig(readFileSync(file, 'utf8'), { source: 'gsm8k-tool.yaml', overrides, note() {} });
  await installWebGpu();
  const engine = await createLocalEngine({ ...engineSizes(config), ...(await readCheckpoint(gsm8kTool)) });
  await new GrpoTrainer({ config, task, engine, ...parts, ...(onStep && { onStep }) }).fit();
}

const [, program, name = '', steps = '40'] = process.argv;
if (program === import.meta.filename) {
  if (!(name in FAULTS)) throw new Error(`"${name}" is not a fault. Choose one of ${Object.keys(FAULTS).join(', ')}.`);
  await train(name, [`trainer.totalTrainingSteps=${steps}`, 'trainer.testFreq=0'], (line) => {
    const short = (/** @type {string} */ key) => line[key]?.toFixed(4);
    if ('critic/score/mean' in line)
      console.log(
        line['training/global_step'],
        short('critic/score/mean'),
        short('response_length/mean'),
        short('actor/ppo_kl'),
      );
  });
  process.exit(); // Dawn's threads would keep Node alive
}
