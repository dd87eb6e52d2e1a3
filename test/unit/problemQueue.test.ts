/** Training problems: in order, by difficulty, without those too long; how many there are; the next step's drawn ahead. */
import { expect, test, vi } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { ProblemQueue } from '../../src/grpo/generate/problems.ts';
import { checkedProblems, withTotalSteps } from '../../src/grpo/generate/trainingSet.ts';
import { statesOf } from '../../src/grpo/parts.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { encodePrompt } from '../../src/rollout/agent/prompt.ts';
import { jsonlTask } from '../../src/tasks/jsonl/task.ts';
import type { Problem, SyncTask, Task } from '../../src/tasks/task.ts';
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

test('hands out every problem once and in order, prefetched or not', async () => {
  const { queue } = queueOf();
  expect(await queue.take(1)).toEqual(problemsOf(0));
  queue.prefetch();
  expect(await queue.take(2)).toEqual(problemsOf(1, 2));
  queue.prefetch(); // 3 is there from before
  expect(await queue.take(4)).toEqual(problemsOf(3, 4, 5, 6));
  expect(queue.position).toBe(7);
});

test('asks a task that draws afresh whenever it is called for each problem once', async () => {
  const drawn: number[] = [];
  const { queue } = queueOf((number, seed) => ({ ...task.train(number, seed), id: `call ${drawn.push(number)}` }));
  queue.prefetch();
  queue.prefetch();
  expect((await queue.take(4)).map(({ id }) => id)).toEqual(['call 1', 'call 2', 'call 3', 'call 4']);
});

test('goes on where a checkpoint was, whatever it had drawn', async () => {
  const { queue } = queueOf();
  await queue.take(3);
  queue.prefetch();
  queue.moveTo(1);
  expect(await queue.take(3)).toEqual(problemsOf(1, 2, 3));
});

test('has encoded the prompts of the next step as its rollout writes them', async () => {
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
  const [first, second, third, ofTheStepAfter] = await queue.take(4);
  for (const problem of [first, second, third]) expect(encodePrompt({ ...prompt, problem }).length).toBeGreaterThan(0);
  expect(() => encodePrompt({ ...prompt, problem: ofTheStepAfter })).toThrow('encoded too late');
});

test('a task that throws does so in the step that needs the problem', async () => {
  const { queue } = queueOf((number, seed) => {
    if (number === 2) throw new Error('no such problem');
    return task.train(number, seed);
  });
  queue.prefetch();
  expect(await queue.take(2)).toEqual(problemsOf(0, 1));
  await expect(queue.take(1)).rejects.toThrow('no such problem');
});

/** Problems of one word, its length in characters the number mod 4; prompts are longer for longer words. */
const words: SyncTask = {
  name: 'words',
  trainSize: 8,
  train: (number) => ({
    id: `w${number % 8}`,
    messages: [{ role: 'user', content: 'x 1 '.repeat(number % 4) }],
    answer: '',
  }),
  heldOut: () => [],
  reward: () => ({ score: 0, acc: 0 }),
};

const { trainSize: _, ...withoutEnd } = words;

const { tokenizer: wordsJson, config: wordsConfig } = buildGsm8kTokenizer();
const wordsTokenizer = new ChatTokenizer(wordsJson, wordsConfig);

function wordQueue(data: object, task: Task = words) {
  const all = { trainBatchSize: 2, ...data };
  const settings = { name: 'words', seed: 5, model: { path: 'x' }, data: all, actor: { ppoMiniBatchSize: 1 } };
  return new ProblemQueue(task, resolveTrainConfig(settings), wordsTokenizer);
}

/** A group of samples of each problem, all with one score. */
const groupsOf = (problems: Problem[], score: (problem: Problem) => number): Sample[] =>
  problems.flatMap((problem, group) =>
    [0, 0].map(() => ({ problem, group, reward: { score: score(problem), acc: 0 } }) as unknown as Sample),
  );

const lengthOf = (number: number) =>
  encodePrompt({ tokenizer: wordsTokenizer, tools: [], toolSchemasInPrompt: false, problem: words.train(number, 1) })
    .length;

test('data.filterOverlongPrompts: the next problem instead, counted, prefetched or not', async () => {
  const queue = wordQueue({ filterOverlongPrompts: true, maxPromptLength: lengthOf(1) });
  expect((await queue.take(3)).map(({ id }) => id)).toEqual(['w0', 'w1', 'w4']);
  expect(queue.takeMetrics()).toEqual({ 'training/overlong_prompts': 2 });
  queue.prefetch();
  expect((await queue.take(2)).map(({ id }) => id)).toEqual(['w5', 'w0']);
  expect(queue.takeMetrics()).toEqual({ 'training/overlong_prompts': 2 });
  await expect(wordQueue({ filterOverlongPrompts: true, maxPromptLength: 1 }).take(1)).rejects.toThrow(
    'data.filterOverlongPrompts left out 10000 training problems in a row: their prompts have more than 1 tokens; raise',
  );
});

test('data.trainMaxSamples: the first of the stream, each once an epoch, in an order of its own from the second on', async () => {
  const endless: Task = { ...withoutEnd, train: (number) => ({ ...words.train(0, 1), id: `w${number}` }) };
  const ids = async (queue: ProblemQueue, count: number) => (await queue.take(count)).map(({ id }) => id);
  const queue = wordQueue({ trainMaxSamples: 6 }, endless);
  const first = await ids(queue, 6);
  expect(first).toEqual(['w0', 'w1', 'w2', 'w3', 'w4', 'w5']);
  const second = await ids(queue, 6);
  expect(second).not.toEqual(first);
  expect([...second].sort()).toEqual(first);
  expect((await ids(wordQueue({ trainMaxSamples: -1 }, endless), 9)).at(-1)).toBe('w8');
});

test('data.sampler difficulty: hard at most 0.25, easy above 0.75; weights 0.2, 1, 0.2, and 1 for unseen (prime-rl)', async () => {
  const scores = [0, 0.25, 0.26, 0.75, 0.76, 1];
  const queue = wordQueue({ sampler: 'difficulty', trainMaxSamples: 8 });
  const drawn = await queue.take(200);
  const seen = [...new Map(drawn.map((problem) => [problem.id, problem])).values()].sort(
    (a, b) => Number(a.id.slice(1)) - Number(b.id.slice(1)),
  );
  expect(seen).toHaveLength(8);
  await queue.observe(groupsOf(seen.slice(0, 6), ({ id }) => scores[Number(id.slice(1))]));
  expect(queue.takeMetrics()).toEqual({ 'pool/unseen': 2, 'pool/hard': 2, 'pool/normal': 2, 'pool/easy': 2 });
  const DRAWS = 4000;
  const counts = new Map<string, number>();
  for (const { id } of await queue.take(DRAWS)) counts.set(id, (counts.get(id) ?? 0) + 1);
  const weights = [0.2, 0.2, 1, 1, 0.2, 0.2, 1, 1];
  const total = weights.reduce((a, b) => a + b);
  weights.forEach((weight, i) => expect((counts.get(`w${i}`) ?? 0) / DRAWS).toBeCloseTo(weight / total, 1.5));

  // What a checkpoint keeps draws on as the run would have.
  const again = wordQueue({ sampler: 'difficulty', trainMaxSamples: 8 });
  again.moveTo(queue.position);
  again.parts['sampler'].restore(JSON.parse(JSON.stringify(queue.parts['sampler'].state())));
  expect(await again.take(50)).toEqual(await queue.take(50));
  expect(() => wordQueue({ sampler: 'difficulty' }, withoutEnd)).toThrow(
    'data.sampler is "difficulty", which draws from a finite set again and again, but task "words" generates problems without end',
  );
  const zero = wordQueue({ sampler: 'difficulty', difficulty: { hardWeight: 0 } });
  await zero.observe(groupsOf(await zero.take(400), () => 0));
  await expect(zero.take(1)).rejects.toThrow('all are in pools of weight 0');
});

test('a task that observes hears of every group, and its state is a part of the checkpoint', async () => {
  const heard: string[] = [];
  const observe: Task['observe'] = ({ id }, rewards) => void heard.push(`${id}: ${rewards.length}`);
  const queue = wordQueue({}, { ...words, observe, state: () => heard.length, restore: () => {} });
  await queue.observe(groupsOf(await queue.take(2), () => 1));
  expect(heard).toEqual(['w0: 2', 'w1: 2']);
  expect(statesOf(queue.parts)).toEqual({ task: 2 });
  expect(statesOf(wordQueue({}).parts)).toBeUndefined();
});

test('trainer.totalEpochs: whole batches of an epoch times epochs, of the problems that fit; written steps win', () => {
  const stepsOf = (trainer: object, data: object = {}, task: Task = words) => {
    const all = { trainBatchSize: 3, ...data };
    const tree = { name: 'x', model: { path: 'x' }, data: all, actor: { ppoMiniBatchSize: 3 }, trainer };
    return withTotalSteps(resolveTrainConfig(tree), task, wordsTokenizer).trainer.totalTrainingSteps;
  };
  expect(stepsOf({ totalEpochs: 5 })).toBe(10); // floor(8 / 3) x 5
  expect(stepsOf({ totalEpochs: 5 }, { filterOverlongPrompts: true, maxPromptLength: lengthOf(1) })).toBe(5); // 4 of 8 fit
  expect(stepsOf({ totalEpochs: 5, totalTrainingSteps: 7 })).toBe(7);
  expect(stepsOf({})).toBe(60);
  expect(stepsOf({ totalEpochs: 2 }, { trainMaxSamples: 7 }, withoutEnd)).toBe(4);
  expect(() => stepsOf({ totalEpochs: 2 }, {}, withoutEnd)).toThrow(
    'trainer.totalEpochs is 2, but task "words" generates problems without end; set data.trainMaxSamples to bound them',
  );
  expect(() => stepsOf({ totalEpochs: 2 }, { trainMaxSamples: 2 })).toThrow('2 training problems do not fill one');
});

test('a task that gives promises: each asked for once, all of a step before the first is there, encoded ahead, and a failure in its own step', async () => {
  const asked: number[] = [];
  const waiting: (() => void)[] = [];
  let isSlow = true;
  const later: Task = {
    ...withoutEnd,
    train: async (number) => {
      asked.push(number);
      if (isSlow) await new Promise<void>((resolve) => waiting.push(resolve));
      if (number === 5) throw new Error('gone');
      return words.train(number, 1);
    },
  };
  const queue = wordQueue({}, later);
  const taken = queue.take(2);
  await new Promise((resolve) => setTimeout(resolve));
  expect([asked, waiting.length]).toEqual([[0, 1], 2]);
  isSlow = false;
  waiting.forEach((answer) => answer());
  expect((await taken).map(({ id }) => id)).toEqual(['w0', 'w1']);
  queue.prefetch();
  expect(asked).toEqual([0, 1, 2, 3]);
  expect((await queue.take(2)).map(({ id }) => id)).toEqual(['w2', 'w3']);
  queue.prefetch(); // 5 fails, which nobody hears of yet
  await new Promise((resolve) => setTimeout(resolve));
  expect((await queue.take(1))[0].id).toBe('w4');
  await expect(queue.take(1)).rejects.toThrow('Training problem 5 of task "words" threw "gone"');
  expect(() => withTotalSteps(epochs(), { ...later, trainSize: 8 }, wordsTokenizer)).toThrow(
    'counts problems before the run, but task "words" gives promises of them; set trainer.totalTrainingSteps',
  );
});

const epochs = () =>
  resolveTrainConfig({
    name: 'x',
    model: { path: 'x' },
    data: { trainBatchSize: 2, filterOverlongPrompts: true },
    actor: { ppoMiniBatchSize: 1 },
    trainer: { totalEpochs: 1 },
  });

const rowsFile = (file: string, wrong: object) => {
  const row = { prompt: 'p', answer: 'a' };
  return { file, text: [row, row, { ...row, ...wrong }, row].map((one) => JSON.stringify(one)).join('\n') };
};
const LOOPS = 'registered are single_turn, tool_agent';

test.each([
  [{ agent_name: 'react' }, `names the agent loop "react"; ${LOOPS}`],
  [{ agentName: 'Tool_Agent' }, `names the agent loop "Tool_Agent"; ${LOOPS}`],
  [{ tools: ['calculator'] }, 'names the tool "calculator"; the tools of task "jsonl" are: none'],
  [{ environment: 'shop' }, 'names the environment "shop"; the environments of task "jsonl" are: none'],
])('a row with %j is refused before the run, by file and line, in training and held-out files', async (wrong, what) => {
  const good = rowsFile('good.jsonl', {});
  const check = (files: Parameters<typeof jsonlTask>[0]) => checkedProblems(jsonlTask(files), config, 1);
  const bad = rowsFile('bad.jsonl', wrong);
  const message = (id: string) => `bad.jsonl, line 3 (problem "${id}") ${what}`;
  await expect(check({ train: bad, val: good })).rejects.toThrow(message('bad.jsonl-2'));
  await expect(check({ train: good, val: bad })).rejects.toThrow(message('bad.jsonl-2'));
  await expect(check({ train: good, val: [{ name: 'a', ...bad }] })).rejects.toThrow(message('bad.jsonl-2'));
  await expect(check({ train: good, val: good })).resolves.toMatchObject({ training: [{ answer: 'a' }] });
});

test('verl’s names of agent loops are known; null and an absent name are the run’s own', async () => {
  for (const agent_name of ['single_turn_agent', 'tool_agent', 'single_turn', null]) {
    const rows = rowsFile('rows.jsonl', { agent_name });
    await expect(checkedProblems(jsonlTask({ train: rows, val: rows }), config, 1)).resolves.toBeDefined();
  }
});

test('the trainer checks the rows of a finite task before it generates, and only what it draws of a stream', async () => {
  const wrong = (index: number): Problem => ({ ...task.train(index, 5), agentName: 'react' });
  const check = (given: Partial<SyncTask>, drawn: number) => checkedProblems({ ...task, ...given }, config, drawn);
  await expect(check({ train: wrong, trainSize: 4 }, 0)).rejects.toThrow(
    'Problem "train-0" names the agent loop "react"',
  );
  await expect(check({ train: wrong }, 2)).rejects.toThrow('Problem "train-0" names');
  await expect(check({ heldOut: () => [wrong(3)] }, 0)).rejects.toThrow('Problem "train-3" names');
  const train = vi.fn(task.train);
  await check({ train }, 0);
  expect(train).not.toHaveBeenCalled();
  await expect(check({ train: () => ({}) as Problem }, 1)).rejects.toThrow(
    'Training problem 0 of task "gsm8k-tool" has no messages',
  );
});
