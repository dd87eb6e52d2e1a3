/**
 * Tests training problems: their order, by number or by difficulty; skipping problems that are too long; their number; and prefetching for
 * the next step.
 */
import { expect, test, vi } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { ProblemQueue } from '../../src/grpo/generate/problems.ts';
import { checkFirstPrompts, checkTemplate, requestLosses } from '../../src/extensions/checks/firstProblems.ts';
import { checkedProblems, completedConfig } from '../../src/grpo/generate/trainingSet.ts';
import { statesOf } from '../../src/grpo/parts.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { encodePrompt, writesSchemas } from '../../src/rollout/agent/prompt.ts';
import { parseGptOss } from '../../src/rollout/tools/gptOss.ts';
import { parseHermes } from '../../src/rollout/tools/parser.ts';
import { ticTacToeTask } from '../../src/extensions/tasks/ticTacToe.ts';
import { gsm8kJsonlTask, parseGsm8kJsonl } from '../../src/extensions/tasks/gsm8k/jsonl.ts';
import { jsonlTask } from '../../src/extensions/tasks/jsonl/task.ts';
import type { Problem, SyncTask, Task } from '../../src/tasks/task.ts';
import { gsm8kToolTask } from '../../src/tasks/gsm8k/task.ts';
import { gsm8kTokenizer } from '../gsm8kTokenizer.ts';
import { TINY_CONFIG } from '../tinyConfig.ts';
import { stub } from '../stub.ts';

const config = resolveTrainConfig({
  name: 'problems',
  seed: 5,
  model: { path: 'in memory' },
  data: { trainBatchSize: 3 },
  actor: { ppoMiniBatchSize: 3 },
});
const task = gsm8kToolTask();
const problemsOf = (...numbers: number[]) => numbers.map((number) => task.train(number, config.seed));

const FILES = gsm8kTokenizer;
const tokenizerOf = (template?: unknown) =>
  new ChatTokenizer(FILES.tokenizer, { ...FILES.config, ...(template !== undefined && { chat_template: template }) });

function queueOf(train = task.train) {
  const tokenizer = tokenizerOf();
  return { queue: new ProblemQueue({ ...task, train }, config, tokenizer), tokenizer };
}

test('every problem is returned once and in order, prefetched or not', async () => {
  const { queue } = queueOf();
  expect(await queue.take(1)).toEqual(problemsOf(0));
  queue.prefetch();
  expect(await queue.take(2)).toEqual(problemsOf(1, 2));
  queue.prefetch(); // 3 was fetched before
  expect(await queue.take(4)).toEqual(problemsOf(3, 4, 5, 6));
  expect(queue.position).toBe(7);
});

test('a task that samples at each call is called once per problem', async () => {
  const drawn: number[] = [];
  const { queue } = queueOf((number, seed) => ({ ...task.train(number, seed), id: `call ${drawn.push(number)}` }));
  queue.prefetch();
  queue.prefetch();
  expect((await queue.take(4)).map(({ id }) => id)).toEqual(['call 1', 'call 2', 'call 3', 'call 4']);
});

test('a restored queue continues at its checkpoint, whatever was fetched since', async () => {
  const { queue } = queueOf();
  await queue.take(3);
  queue.prefetch();
  queue.moveTo(1);
  expect(await queue.take(3)).toEqual(problemsOf(1, 2, 3));
});

test('the prompts of the next step are encoded ahead, exactly as rollout encodes them', async () => {
  const { queue, tokenizer } = queueOf();
  const prompt = {
    tokenizer,
    tools: task.tools ?? [],
    toolSchemasInPrompt: false,
  };
  queue.prefetch();
  vi.spyOn(tokenizer, 'applyChatTemplate').mockImplementation(() => {
    throw new Error('encoded too late');
  });
  const [first, second, third, ofTheStepAfter] = await queue.take(4);
  for (const problem of [first, second, third]) expect(encodePrompt({ ...prompt, problem }).length).toBeGreaterThan(0);
  expect(() => encodePrompt({ ...prompt, problem: ofTheStepAfter })).toThrow('encoded too late');
});

test('an error of a task is thrown in the step that needs the problem', async () => {
  const { queue } = queueOf((number, seed) => {
    if (number === 2) throw new Error('no such problem');
    return task.train(number, seed);
  });
  queue.prefetch();
  expect(await queue.take(2)).toEqual(problemsOf(0, 1));
  await expect(queue.take(1)).rejects.toThrow('no such problem');
});

/** A task with prompts of different lengths: prompt `number` is a short text, repeated (`number` mod 4) times. */
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

const { tokenizer: wordsJson, config: wordsConfig } = FILES;
const wordsTokenizer = new ChatTokenizer(wordsJson, wordsConfig);
const wordsEngine = { tokenizer: wordsTokenizer, model: { config: TINY_CONFIG } };

function wordQueue(data: object, task: Task = words) {
  const all = { trainBatchSize: 2, ...data };
  const settings = { name: 'words', seed: 5, model: { path: 'x' }, data: all, actor: { ppoMiniBatchSize: 1 } };
  return new ProblemQueue(task, resolveTrainConfig(settings), wordsTokenizer);
}

/** Returns a group of samples for each problem. All samples have the same score. */
const groupsOf = (problems: Problem[], score: (problem: Problem) => number): Sample[] =>
  problems.flatMap((problem, group) =>
    [0, 0].map(() => stub<Sample>({ problem, group, reward: { score: score(problem), acc: 0 } })),
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
    'data.filterOverlongPrompts skipped 10000 training problems in a row: their prompts have more than 1 tokens. Raise',
  );
});

test('data.trainMaxSamples: the first of the stream, each once per epoch, in a different order from the second epoch', async () => {
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

test('data.trainMaxSamples of a task that adapts: a resumed run has the problems of the run before', async () => {
  const adapting = (): Task => {
    let level = 0;
    return {
      ...withoutEnd,
      train: async (number) => ({ ...words.train(0, 1), id: `w${number} of level ${level}` }),
      observe: () => void level++,
      state: () => level,
      restore: (saved) => void (level = Number(saved)),
    };
  };
  const queue = wordQueue({ trainMaxSamples: 4 }, adapting());
  const taken = await queue.take(3);
  await queue.observe(groupsOf(taken, () => 1));
  const saved: unknown = JSON.parse(JSON.stringify(queue.parts['task'].state()));
  const resumed = wordQueue({ trainMaxSamples: 4 }, adapting());
  resumed.parts['task'].restore(saved);
  resumed.moveTo(queue.position);
  const more = await queue.take(9);
  expect(await resumed.take(9)).toEqual(more);
  expect(new Set(more.map(({ id }) => id))).toEqual(new Set([...taken.map(({ id }) => id), 'w3 of level 3']));
  // A checkpoint of a run without the limit has the state of the task alone.
  const unlimited = wordQueue({ trainMaxSamples: 4 }, adapting());
  unlimited.parts['task'].restore(7);
  expect((await unlimited.take(1))[0].id).toBe('w0 of level 7');
  // A resumed run without the limit takes the state of the task alone, and a state that is not there yet is not restored.
  const free = wordQueue({}, adapting());
  free.parts['task'].restore(saved);
  expect((await free.take(1))[0].id).toBe('w0 of level 3');
  free.parts['task'].restore({ ofTask: undefined, chosen: [] });
  expect((await free.take(1))[0].id).toBe('w1 of level 3');
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

  // The restored queue must continue like the original one.
  const again = wordQueue({ sampler: 'difficulty', trainMaxSamples: 8 });
  again.moveTo(queue.position);
  again.parts['sampler'].restore(JSON.parse(JSON.stringify(queue.parts['sampler'].state())));
  expect(await again.take(50)).toEqual(await queue.take(50));
  expect(() => wordQueue({ sampler: 'difficulty' }, withoutEnd)).toThrow(
    'data.sampler is "difficulty", which samples repeatedly from a finite set, but task "words" generates problems without end',
  );
  const zero = wordQueue({ sampler: 'difficulty', difficulty: { hardWeight: 0 } });
  await zero.observe(groupsOf(await zero.take(400), () => 0));
  await expect(zero.take(1)).rejects.toThrow('all are in pools of weight 0');
});

test('observe is called with every group, and its state is part of the checkpoint', async () => {
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
    return completedConfig(resolveTrainConfig(tree), task, wordsEngine).trainer.totalTrainingSteps;
  };
  expect(stepsOf({ totalEpochs: 5 })).toBe(10); // floor(8 / 3) x 5
  expect(stepsOf({ totalEpochs: 5 }, { filterOverlongPrompts: true, maxPromptLength: lengthOf(1) })).toBe(5); // 4 of 8 fit
  expect(stepsOf({ totalEpochs: 5, totalTrainingSteps: 7 })).toBe(7);
  expect(stepsOf({})).toBe(60);
  expect(stepsOf({ totalEpochs: 2 }, { trainMaxSamples: 7 }, withoutEnd)).toBe(4);
  expect(() => stepsOf({ totalEpochs: 2 }, {}, withoutEnd)).toThrow(
    'trainer.totalEpochs is 2, but task "words" generates endless problems. Set data.trainMaxSamples to bound them',
  );
  expect(() => stepsOf({ totalEpochs: 2 }, { trainMaxSamples: 2 })).toThrow('2 training problems do not fill one');
});

test('an asynchronous task is called once per problem, for all problems of a step at the same time, and fails in the right step', async () => {
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
  queue.prefetch(); // 5 fails, without an error yet
  await new Promise((resolve) => setTimeout(resolve));
  expect((await queue.take(1))[0].id).toBe('w4');
  await expect(queue.take(1)).rejects.toThrow('Training problem 5 of task "words" threw "gone"');
  expect(() => completedConfig(epochs(), { ...later, trainSize: 8 }, wordsEngine)).toThrow(
    'counts problems before the run, but task "words" returns promises of them. Set trainer.totalTrainingSteps',
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

/** TinyLlama's chat template: three roles, whose tags are not single tokens. */
const TINY_LLAMA = `{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}`;
/** Phi-3-mini's first chat template, which has no branch for the system message. */
const PHI_3 =
  "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') %}{{'<|user|>' + '\n' + message['content'] + eos_token + '\n'}}" +
  "{% elif (message['role'] == 'assistant') %}{{'<|assistant|>' + '\n' + message['content'] + eos_token + '\n'}}{% endif %}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|assistant|>' + '\n' }}{% endif %}";
/** Gemma's template. */
const GEMMA = `{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}
{{- '<|im_start|>' + message['role'] + '\n' + message['content'] | trim + '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`;
const CHATML =
  "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' }}";
const OWN = undefined;

/** Returns the lines that are printed before a run with this chat template. */
function said(template: string | undefined, asked: Task, multiTurn: object = {}): Promise<string[]> {
  const tokenizer = tokenizerOf(template);
  const run = { ...config, rollout: { ...config.rollout, multiTurn: { ...config.rollout.multiTurn, ...multiTurn } } };
  return checkFirstPrompts({ config: run, task: asked, tokenizer }).catch((error: unknown) => [`${String(error)}`]);
}
const WAY_OUT =
  'Use a template that writes them: set model.customChatTemplate, or "chat_template" in tokenizer_config.json.';
const LOST_RESULTS = `InputError: The chat template leaves out tool results, so the model never reads them. ${WAY_OUT}`;
const [{ messages: asked }] = problemsOf(0);
const without = ({ tools: _, ...rest }: Task): Task => rest;
const withMessages = (messages: Problem['messages'], of: Task = task): Task => {
  const problem = { ...problemsOf(0)[0], messages };
  return { ...of, train: () => problem, heldOut: () => [{ ...problem, answer: 'another' }] };
};
const withSystem = withMessages([{ role: 'system', content: 'Be brief.' }, ...asked], without(task));

test('held-out problems that are missing, or that are trained on, are told', async () => {
  const heldOut = (problems: Problem[]): Task => ({ ...task, heldOut: () => problems });
  expect(await said(OWN, heldOut([]))).toEqual([
    `Task "${task.name}" has no held-out problems: no pass@1 is measured.`,
  ]);
  const [trained] = problemsOf(7); // of step 3: a step has three problems
  expect(await said(OWN, heldOut([trained, ...task.heldOut(2)]))).toEqual([
    `At least 1 of 3 held-out problems are training problems too, e.g. "${trained.id}": pass@1 is too high.`,
  ]);
});

test.each<[string, string | undefined, Task, object, string[]]>([
  ['the shipped one', OWN, task, {}, []],
  ['no branch for tools (TinyLlama)', TINY_LLAMA, task, {}, [LOST_RESULTS]],
  ['no branch for tools or system (Phi-3)', PHI_3, task, {}, [LOST_RESULTS]],
  ['a task without tools', TINY_LLAMA, without(task), {}, []],
  ['tools that are never called', TINY_LLAMA, task, { enable: false }, []],
  [
    'a system message, without a branch',
    PHI_3,
    withSystem,
    {},
    [`The chat template leaves out system messages, so the model never reads them. ${WAY_OUT}`],
  ],
  ['a system message, with one', TINY_LLAMA, withSystem, {}, []],
  [
    'schemas that are asked for',
    CHATML,
    task,
    { toolSchemasInPrompt: true },
    [
      `The chat template leaves out tool schemas (rollout.multiTurn.toolSchemasInPrompt), so the model never reads them. ${WAY_OUT}`,
    ],
  ],
  ['schemas that the template writes', OWN, task, { toolSchemasInPrompt: true }, []],
  [
    'an alternation',
    GEMMA,
    task,
    {},
    [
      'InputError: The chat template refuses tool results after an assistant message: Conversation roles must alternate ' +
        `user/assistant/user/assistant/... ${WAY_OUT}`,
    ],
  ],
  [
    'a refused system message',
    GEMMA,
    withSystem,
    {},
    [
      `InputError: The chat template refuses the prompt of problem "${problemsOf(0)[0].id}" (messages: system, user): ` +
        'System role not supported. Change the messages, or set model.customChatTemplate to a template that takes them.',
    ],
  ],
  ['an environment that answers', PHI_3, ticTacToeTask(), {}, []],
  [
    'an environment whose answers are lost',
    GEMMA.replace("'content'] | trim", "'content'][:99 if loop.first or message.role != 'user' else 0]"),
    ticTacToeTask(),
    {},
    [`InputError: The chat template leaves out user messages, so the model never reads them. ${WAY_OUT}`],
  ],
  [
    'a prompt whose question is lost',
    TINY_LLAMA,
    withMessages([...asked, { role: 'assistant', content: 'a' }, { role: 'tool', content: '4' }]),
    {},
    [
      `InputError: The chat template leaves out tool results at the end of the prompt of problem "${problemsOf(0)[0].id}", ` +
        `so the model never reads what it is asked. ${WAY_OUT}`,
    ],
  ],
  [
    'calls that the format ends by a token',
    OWN,
    task,
    { format: 'glm' },
    [
      "InputError: The chat template does not write <|observation|> after an assistant's `tool_calls`, so tool outputs cannot be " +
        "appended to sampled tokens. Use the model's own template, or set rollout.multiTurn.format to the format it writes.",
    ],
  ],
])('what the template loses is said before a run: %s', async (_, template, of, multiTurn, sentences) => {
  expect(await said(template, of, multiTurn)).toEqual(sentences);
});

const IN_TOOL_USE = [
  { name: 'default', template: CHATML },
  { name: 'tool_use', template: `{{ tools | tojson }}${CHATML}` },
];
const LISTS_NAMES = `{% for tool in tools or [] %}{{ tool.function.name | upper }}{% endfor %}${CHATML}`;
test.each<[string, unknown, object, object, boolean]>([
  ['webgrpo, which was trained without', OWN, {}, {}, false],
  ['webgrpo, if set', OWN, { toolSchemasInPrompt: true }, {}, true],
  ['no tools (SmolLM2)', CHATML, {}, {}, false],
  ['no tools, if set', CHATML, { toolSchemasInPrompt: true }, {}, true],
  ['no tools, and refuses more (Gemma)', GEMMA, {}, {}, false],
  ['a template for tools (Hermes)', IN_TOOL_USE, {}, {}, true],
  ['a template for tools, switched off', IN_TOOL_USE, { toolSchemasInPrompt: false }, {}, false],
  ['names in capitals', LISTS_NAMES, {}, {}, true],
  ['names, for samples of one turn', LISTS_NAMES, {}, { defaultAgentLoop: 'single_turn' }, false],
  ['names, for samples of one turn by verl', LISTS_NAMES, {}, { defaultAgentLoop: 'single_turn_agent' }, false],
  ['names, for samples without tools', LISTS_NAMES, { enable: false }, {}, false],
])('schemas are in the prompt if the template reads tools: %s', (_, template, multiTurn, agent, isWritten) => {
  const { rollout } = config;
  const settings = { multiTurn: { ...rollout.multiTurn, ...multiTurn }, agent: { ...rollout.agent, ...agent } };
  expect(writesSchemas(settings, tokenizerOf(template))).toBe(isWritten);
});

test("a problem's own agent loop decides whether its prompt has schemas", () => {
  const own = tokenizerOf(LISTS_NAMES);
  const written = (defaultAgentLoop: string, agentName?: string) =>
    writesSchemas(
      { ...config.rollout, agent: { defaultAgentLoop } },
      own,
      agentName === undefined ? {} : { agentName },
    );
  expect(written('single_turn_agent', 'tool_agent')).toBe(true);
  expect(written('tool_agent', 'single_turn_agent')).toBe(false);
  expect([written('single_turn_agent'), written('tool_agent')]).toEqual([false, true]);
});

test('a server reports what requests would lose', () => {
  const losses = (template?: string, parser = parseHermes) => requestLosses(tokenizerOf(template), parser);
  expect(losses()).toEqual([]);
  expect(losses(PHI_3)).toEqual([
    `The chat template leaves out system messages of requests. ${WAY_OUT}`,
    LOST_RESULTS.replace('InputError: ', ''),
  ]);
  expect(losses(GEMMA)[0]).toBe('The chat template stops at this conversation: System role not supported.');
  expect(requestLosses(tokenizerOf(OWN), parseHermes, true)).toEqual([]);
  expect(requestLosses(tokenizerOf(CHATML), parseHermes, true)).toEqual([
    `The chat template leaves out tool schemas (rollout.multiTurn.toolSchemasInPrompt) of requests. ${WAY_OUT}`,
  ]);
  expect(losses(TINY_LLAMA, parseGptOss)).toEqual([
    expect.stringMatching(/^The chat template does not write <\|call\|>/),
  ]);
});

test('prompts that contain the template already are counted, and the first is named by file and line', () => {
  const row = (prompt: unknown) => JSON.stringify({ prompt, answer: '1' });
  const wrapped = '<|im_start|>user\nWhat is 1 + 1?<|im_end|>\n<|im_start|>assistant\n';
  const text = (...prompts: unknown[]) => prompts.map(row).join('\n');
  const notesOf = (template: string | undefined, train: string, val: string) => {
    const rows = jsonlTask(
      { train: { file: 'train.jsonl', text: train }, val: [{ file: 'val.jsonl', name: 'v', text: val }] },
      {},
    );
    const tokenizer = tokenizerOf(template);
    const training = Array.from({ length: rows.trainSize! }, (_, i) => rows.train(i, 0));
    return checkTemplate({ config, task: rows, tokenizer }, { training, heldOut: rows.heldOut(9) });
  };
  const sentence = (train: string, held: string, tag: string, place: string) => [
    `${train} training and ${held} held-out prompts hold tags of the chat template, e.g. "${tag}" in ${place}. The template wraps ` +
      'them again and the model reads the tags as plain text: give the bare question, or "messages" with role and content.',
  ];
  const plain = 'Is a < b, [sic] <b>x</b> or <think>?';
  const inSystem = [
    { role: 'system', content: 'Close with <|im_end|>.' },
    { role: 'user', content: plain },
  ];
  expect(notesOf(OWN, text(plain, inSystem), text(plain))).toEqual([]);
  expect(notesOf(OWN, `${row(plain)}\n\n${row(wrapped)}`, text(plain))).toEqual(
    sentence('1 of 2', '0 of 1', '<|im_end|>', 'train.jsonl, line 3'),
  );
  expect(notesOf(OWN, text(plain), text(plain, [{ role: 'user', content: wrapped }]))).toEqual(
    sentence('0 of 1', '1 of 2', '<|im_end|>', 'val.jsonl, line 2'),
  );
  // A chat template in the format of Llama 2, whose tags are not single tokens.
  const inst =
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ m.content }} {{ eos_token }}{% endif %}{% endfor %}";
  expect(notesOf(inst, text('[INST] How many? [/INST]'), text(plain))).toEqual(
    sentence('1 of 1', '0 of 1', '[/INST]', 'train.jsonl, line 1'),
  );
  expect(notesOf(TINY_LLAMA, text('<|user|>\nHow many?'), text(plain))).toEqual(
    sentence('1 of 1', '0 of 1', '<|user|>', 'train.jsonl, line 1'),
  );
});

test("rows of GSM8K's own files keep their place through a prompt", async () => {
  const file = [wrappedRow('How many?'), wrappedRow('<|im_start|>user\nHow many?')].join('\n');
  const [, second] = parseGsm8kJsonl(file, 'gsm8k.jsonl');
  const rows = gsm8kJsonlTask([second], [], { prompt: { systemPrompt: 'S', instruction: 'Think.' } });
  const [note] = await said(OWN, rows);
  expect(note).toMatch(/^1 of 1 training and 0 of 0 held-out prompts .+ in gsm8k\.jsonl, line 2\. /);
});

const wrappedRow = (question: string) => JSON.stringify({ question, answer: '#### 1' });

const rowsFile = (file: string, wrong: object) => {
  const row = { prompt: 'p', answer: 'a' };
  return { file, text: [row, row, { ...row, ...wrong }, row].map((one) => JSON.stringify(one)).join('\n') };
};
const LOOPS = 'registered: single_turn, tool_agent';

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

test("verl's names of agent loops are known; null and an absent name are the run's own", async () => {
  for (const agent_name of ['single_turn_agent', 'tool_agent', 'single_turn', null]) {
    const rows = rowsFile('rows.jsonl', { agent_name });
    await expect(checkedProblems(jsonlTask({ train: rows, val: rows }), config, 1)).resolves.toBeDefined();
  }
});

test('the trainer checks all rows of a finite task before it generates, but only the sampled ones of a stream', async () => {
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
  await expect(check({ train: () => stub<Problem>({}) }, 1)).rejects.toThrow(
    'Training problem 0 of task "gsm8k-tool" has no messages',
  );
});

const TOOL = { name: 'add', description: 'adds', parameters: { type: 'object', properties: {} }, execute: () => 1 };
test.each([
  [[{ ...TOOL, name: 'calc x' }], /^A tool is named "calc x"; allowed: 1 to 64 letters/],
  [[{ ...TOOL, name: undefined }], /^A tool is named undefined; allowed/],
  [
    [{ ...TOOL, parameters: undefined }],
    /^Tool "add" has the parameters undefined\. Give \{ type: 'object', properties/,
  ],
  [[{ ...TOOL, parameters: { type: 'object' } }], /^Tool "add" has the parameters \{"type":"object"\}\. Give/],
  [[{ ...TOOL, execute: 'x' }], /^Tool "add" has no function "execute"\. Give execute\(args\)/],
  [[TOOL, TOOL], /^Task "gsm8k-tool" has two tools named "add"\. Rename one of them\.$/],
  [[null], /^A tool is null\. Give \{ name, description, parameters, execute \}\.$/],
  [{ add: TOOL }, /^Task "gsm8k-tool" has the tools \{"add":.*\. Give a list of tools\.$/],
])('the plain tools %j are refused before the run', async (tools, message) => {
  await expect(checkedProblems({ ...task, tools: tools as never }, config, 0)).rejects.toThrow(message);
  await expect(checkedProblems({ ...task, tools: [TOOL] as never }, config, 0)).resolves.toBeDefined();
});

test.each([
  [
    { messages: 'hello' },
    /^Training problem 0 .* has the messages "hello", so it has no messages that can be read\. Give/,
  ],
  [{ messages: [{ role: 'user', text: 'x' }] }, /has the messages \[\{"role":"user".*no messages that can be read\./],
  [{ id: undefined }, /^Training problem 0 of task "gsm8k-tool" has the id undefined\. Give \{ id,/],
  [{ id: 7 }, /has the id 7\. Give/],
  [{ answer: 5 }, /has the answer 5\. Give .* with texts for id, content and answer and with the roles system, user, /],
  [
    { messages: [{ role: 'human', content: 'x' }] },
    /has the messages \[\{"role":"human".*no messages that can be read\./,
  ],
])('a problem with %j is refused before the run', async (wrong, message) => {
  const train = () => ({ ...task.train(0, 1), ...(wrong as object) });
  await expect(checkedProblems({ ...task, train }, config, 1)).rejects.toThrow(message);
});
