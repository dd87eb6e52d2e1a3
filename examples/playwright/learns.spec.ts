import { calculator, type Task } from 'webgrpo';
import { expect, test } from 'webgrpo/playwright';

const sum = (a: number, b: number) => ({
  id: `${a}+${b}`,
  messages: [{ role: 'user' as const, content: `Tom has ${a} books and buys ${b} more. How many books in all?` }],
  answer: `${a + b}`,
});

const task: Task = {
  name: 'sums',
  train: (index) => sum(3 + (index % 40), 3 + (index % 37)),
  heldOut: (count) => Array.from({ length: count }, (_, i) => sum(3 + i, 45)),
  tools: [calculator],
  reward({ problem, response }) {
    const acc = response.trim().endsWith(`#### ${problem.answer}`) ? 1 : 0;
    return { score: acc, acc };
  },
};

test('the reward of sums rises', async ({ trainInPage }) => {
  test.setTimeout(600_000);
  const config = {
    name: 'sums',
    model: { path: 'checkpoints/gsm8k-tool' },
    data: { trainBatchSize: 8, maxResponseLength: 96, valMaxSamples: 8 },
    actor: { optim: { lr: 1e-3 } },
    trainer: { totalTrainingSteps: 10 },
  };
  const run = await trainInPage(config, { task });
  expect(run).toLearn({ metric: 'critic/score/mean', atLeast: 0.6, last: 3 });
});
