/** Training problems in order, the next step's drawn and encoded ahead. */
import { expect, test, vi } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { ProblemQueue } from '../../src/grpo/generate/problems.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { encodePrompt } from '../../src/rollout/agent/prompt.ts';
import { gsm8kToolTask } from '../../src/tasks/gsm8k/task.ts';
import { buildGsm8kTokenizer } from '../../src/tasks/gsm8k/tokenizer.ts';

const config = resolveTrainConfig({
  name: 'problems',
  seed: 5,
  model: { path: 'in memory' },
  data: { trainBatchSize: 3 },
  actor: { ppoMiniBatchSize: 3 },
});
const task = gsm8kToolTask();
const problemsOf = (...numbers: number[]) => numbers.map((number) => task.train(number, config.seed));

function queueOf(train = task.train) {
  const { tokenizer: json, config: tokenizerConfig } = buildGsm8kTokenizer();
  const tokenizer = new ChatTokenizer(json, tokenizerConfig);
  return { queue: new ProblemQueue({ ...task, train }, config, tokenizer), tokenizer };
}

test('hands out every problem once and in order, prefetched or not', () => {
  const { queue } = queueOf();
  expect(queue.take(1)).toEqual(problemsOf(0));
  queue.prefetch();
  expect(queue.take(2)).toEqual(problemsOf(1, 2));
  queue.prefetch(); // 3 is there from before
  expect(queue.take(4)).toEqual(problemsOf(3, 4, 5, 6));
  expect(queue.position).toBe(7);
});

test('asks a task that draws afresh whenever it is called for each problem once', () => {
  const drawn: number[] = [];
  const { queue } = queueOf((number, seed) => ({ ...task.train(number, seed), id: `call ${drawn.push(number)}` }));
  queue.prefetch();
  queue.prefetch();
  expect(queue.take(4).map(({ id }) => id)).toEqual(['call 1', 'call 2', 'call 3', 'call 4']);
});

test('goes on where a checkpoint was, whatever it had drawn', () => {
  const { queue } = queueOf();
  queue.take(3);
  queue.prefetch();
  queue.moveTo(1);
  expect(queue.take(3)).toEqual(problemsOf(1, 2, 3));
});

test('has encoded the prompts of the next step as its rollout writes them', () => {
  const { queue, tokenizer } = queueOf();
  const prompt = {
    tokenizer,
    tools: task.tools ?? [],
    toolSchemasInPrompt: config.rollout.multiTurn.toolSchemasInPrompt,
  };
  queue.prefetch();
  vi.spyOn(tokenizer, 'applyChatTemplate').mockImplementation(() => {
    throw new Error('encoded too late');
  });
  const [first, second, third, ofTheStepAfter] = queue.take(4);
  for (const problem of [first, second, third]) expect(encodePrompt({ ...prompt, problem }).length).toBeGreaterThan(0);
  expect(() => encodePrompt({ ...prompt, problem: ofTheStepAfter })).toThrow('encoded too late');
});

test('a task that throws does so in the step that needs the problem', () => {
  const { queue } = queueOf((number, seed) => {
    if (number === 2) throw new Error('no such problem');
    return task.train(number, seed);
  });
  queue.prefetch();
  expect(queue.take(2)).toEqual(problemsOf(0, 1));
  expect(() => queue.take(1)).toThrow('no such problem');
});
