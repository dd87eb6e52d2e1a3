import { computeAdvantages, type Metrics, resolveTrainConfig, type TrainerEngine } from 'webgrpo';
import { Learner } from 'webgrpo/learner';

export const config = resolveTrainConfig({
  name: 'grpo-loop',
  model: { path: 'gsm8k-tool' },
  data: { trainBatchSize: 4, maxPromptLength: 64, maxResponseLength: 24 },
  rollout: { n: 6 },
  actor: { ppoMiniBatchSize: 4, shuffle: false },
});

/** Returns the number of characters that the answer to problem 0, 1, 2, ... must have. */
export const askedLength = (index: number) => 10 + ((index * 7) % 31);
export const promptOf = (asked: number) => [{ role: 'user' as const, content: `Write ${asked} characters.` }];
export const rewardOf = (asked: number, text: string) => 1 - Math.abs(text.length - asked) / asked;

export async function grpo(engine: TrainerEngine, steps: number) {
  const learner = new Learner({ engine, config });
  const history: Metrics[] = [];
  for (let step = 0; step < steps; step++) {
    const asked = Array.from({ length: 4 }, (_, i) => askedLength(4 * step + i));
    const rows = (await learner.sample(asked.map(promptOf), 6)).flat();
    const rewards = rows.map(({ group, text }) => rewardOf(asked[group], text));
    const groups = rows.map(({ group }) => group);
    const masks = rows.map(({ mask }) => mask);
    const advantages = computeAdvantages('grpo', { rewards, groups, masks });
    const trained = rows.map((row, i) => ({ ...row, advantages: advantages[i] }));
    const { metrics } = await learner.forwardBackward(trained, 'grpo');
    const { gradNorm } = await learner.optimStep({ lr: 2.5e-4 });
    history.push({ ...metrics, gradNorm, reward: rewards.reduce((a, b) => a + b) / rewards.length });
  }
  return history;
}
