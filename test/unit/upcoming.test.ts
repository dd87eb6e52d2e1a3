/** The next step's problems, drawn and encoded ahead. */
import { expect, test, vi } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { UpcomingProblems } from '../../src/grpo/generate/problems.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { gsm8kToolTask } from '../../src/tasks/gsm8k/task.ts';
import { buildGsm8kTokenizer } from '../../src/tasks/gsm8k/tokenizer.ts';

const config = resolveTrainConfig({
  name: 'upcoming',
  seed: 5,
  model: { path: 'in memory' },
  data: { trainBatchSize: 3 },
  actor: { ppoMiniBatchSize: 3 },
});
const task = gsm8kToolTask();

function upcoming(train = task.train) {
  const { tokenizer: json, config: tokenizerConfig } = buildGsm8kTokenizer();
  const tokenizer = new ChatTokenizer(json, tokenizerConfig);
  const [encode, draw] = [vi.spyOn(tokenizer, 'encodeChat'), vi.fn(train)];
  return { problems: new UpcomingProblems({ ...task, train: draw }, config, tokenizer), encode, draw };
}

test('are each drawn once, by number and seed, and encoded before they are taken', () => {
  const { problems, encode, draw } = upcoming();
  const first = problems.take(0);
  problems.prepare(1);
  expect(encode).toHaveBeenCalledTimes(3);
  expect([0, 1, 2, 3].map((number) => (number === 0 ? first : problems.take(number)))).toEqual(
    [0, 1, 2, 3].map((number) => task.train(number, 5)),
  );
  expect(draw.mock.calls.map(([number]) => number)).toEqual([0, 1, 2, 3]);
  problems.prepare(4);
  problems.clear();
  problems.take(4);
  expect(draw).toHaveBeenCalledTimes(8); // after a checkpoint was restored
});

test('a task that fails fails in the step that needs the problem', () => {
  const { problems } = upcoming((number, seed) => {
    if (number === 2) throw new Error('no such problem');
    return task.train(number, seed);
  });
  problems.prepare(0);
  expect(problems.take(0)).toEqual(task.train(0, 5));
  expect(() => problems.take(2)).toThrow('no such problem');
});
