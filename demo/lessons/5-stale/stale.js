import { computeAdvantages, resolveTrainConfig } from 'webgrpo';
import { Learner } from 'webgrpo/learner';
import { reverseTextTask } from 'webgrpo/tasks';

export const config = resolveTrainConfig({
  name: 'stale',
  model: { path: 'checkpoints/reverse-text' },
  data: { trainBatchSize: 16, maxPromptLength: 32, maxResponseLength: 5 },
  rollout: { n: 16, maxNumSeqs: 256 },
});
const task = reverseTextTask();

/** @type {(text: string, answer: string) => number} 1 = the word is right; else half the share of letters in place */
function reward(text, answer) {
  const placed = [...answer].filter((letter, i) => text[i] === letter).length;
  return (placed / Math.max(text.length, answer.length) + Number(text === answer)) / 2;
}

/** @type {import('../kit/runLoop.ts').Train} */
export async function train({ engine, show, lr = 1e-3, seed = 1, steps = 60, delay = 4, loss = 'grpo' }) {
  const learner = new Learner({ engine, config });
  const queue = [];
  for (let batch = 1; batch <= steps + delay; batch++) {
    const problems = Array.from({ length: 16 }, (_, i) => task.train(16 * batch + i, seed));
    const prompts = problems.map(({ messages }) => messages);
    const tries = (await learner.sample(prompts, 16, { seed, step: batch })).flat(); // draw
    const rewards = tries.map(({ text, group }) => reward(text, problems[group].answer)); // score
    const groups = tries.map(({ group }) => group);
    const masks = tries.map(({ mask }) => mask);
    const advantages = computeAdvantages('grpo', { rewards, groups, masks }); // compare
    queue.push(tries.map((row, i) => ({ ...row, advantages: advantages[i] }))); // wait
    if (queue.length <= delay) continue;
    const { metrics } = await learner.forwardBackward(queue.splice(0, 1)[0], loss); // the oldest batch
    const { gradNorm } = await learner.optimStep({ lr }); // nudge
    show({ step: batch - delay, problems, tries, rewards, metrics, gradNorm });
  }
}
