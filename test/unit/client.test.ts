/**
 * Tests the training client without a GPU: shapes of its rows, the sequences that calls continue, refused requests, and that a finished run
 * leaves nothing behind.
 */

import { afterEach, describe, expect, test, vi } from 'vitest';
import type OpenAI from 'openai';
import { DeviceLostError } from '../../src/errors.ts';
import { readRequest } from '../../src/extensions/client/api/request.ts';
import {
  type ChatCompletion,
  type ClientLimits,
  ClientTrainer,
  type CompletionParams,
  type MessageShape,
  type ToolShape,
  type TrainingClient,
} from '../../src/extensions/client/index.ts';
import type { SavedEpisodes } from '../../src/extensions/client/saved.ts';
import type { Learner } from '../../src/extensions/learner/learner.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { rowTokens, wholeTrajectories } from '../../src/grpo/update/rows.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { tokenizer, tokenizerJson } from '../scriptedTurns.ts';
import { talkingRun } from '../clientEngine.ts';
import { anyNumber, stub } from '../stub.ts';

const QUESTION: MessageShape[] = [{ role: 'user', content: 'What is 2 plus 2?' }];
const TOOLS: ToolShape[] = [
  {
    type: 'function',
    function: {
      name: 'calculator',
      description: 'Computes.',
      parameters: { type: 'object', properties: { expression: { type: 'string' } }, required: ['expression'] },
    },
  },
];
const CALL = '<tool_call>{"name": "calculator", "arguments": {"expression": "2+2"}}</tool_call>';

afterEach(() => void vi.useRealTimers());

test('a list of types is read as alternatives, so that a text stays one', () => {
  const read = (property: object) => {
    const parameters = { type: 'object', properties: { p: property } };
    const tools = [{ type: 'function', function: { name: 'f', parameters } }];
    const [tool] = readRequest({ messages: QUESTION, tools }, talkingRun().trainer.groups.served).tools;
    return tool.parameters.properties['p'];
  };
  expect(read({ type: ['string', 'null'], description: 'd', maxLength: 3 })).toEqual({
    description: 'd',
    anyOf: [
      { type: 'string', maxLength: 3 },
      { type: 'null', maxLength: 3 },
    ],
  });
  expect(read({ description: 'd' })).toEqual({ description: 'd', type: 'any' });
});

describe('completions', () => {
  test('have the shape that the openai package types', async () => {
    const { trainer, rollout } = talkingRun();
    const client = trainer.client();
    const params: OpenAI.ChatCompletionCreateParamsNonStreaming = {
      model: 'talking',
      messages: [{ role: 'user', content: 'Hi' }],
    };
    const ours = await client.chat.completions.create(params as CompletionParams & { stream?: false });
    const completion = ours as ChatCompletion & OpenAI.ChatCompletion;
    expect(completion).toMatchObject({
      object: 'chat.completion',
      model: 'talking',
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: 'Four.', refusal: null },
          logprobs: null,
          finish_reason: 'stop',
        },
      ],
    });
    expect(completion.id).toContain(client.trajectory.id);
    const { prompt_tokens: prompt, completion_tokens: drawn, total_tokens: total } = completion.usage;
    expect(prompt).toBe(rollout.requests[0].contextIds.length);
    expect(total).toBe(prompt + drawn);
  });

  test('a call is parsed, its arguments are JSON text; cut by max_tokens it is text', async () => {
    const { trainer, rollout } = talkingRun();
    rollout.says = () => `Let me see.\n${CALL}`;
    const whole = await trainer.client().chat.completions.create({ messages: QUESTION, tools: TOOLS });
    const [{ message, finish_reason: reason }] = whole.choices;
    expect([reason, message.content]).toEqual(['tool_calls', 'Let me see.']);
    expect(message.tool_calls).toMatchObject([
      { type: 'function', function: { name: 'calculator', arguments: '{"expression":"2+2"}' } },
    ]);
    const none = await trainer
      .client()
      .chat.completions.create({ messages: QUESTION, tools: TOOLS, tool_choice: 'none' });
    expect(none.choices[0].message).toMatchObject({ content: `Let me see.\n${CALL}` });
    const cut = await trainer.client().chat.completions.create({ messages: QUESTION, tools: TOOLS, max_tokens: 3 });
    expect([cut.choices[0].finish_reason, cut.usage.completion_tokens]).toEqual(['length', 3]);
  });

  test('log-probs and token ids are those of the reply', async () => {
    const { trainer, rollout } = talkingRun();
    const params = { messages: QUESTION, logprobs: true, top_logprobs: 1, return_token_ids: true } as const;
    const { choices, prompt_token_ids: prompt } = await trainer.client().chat.completions.create(params);
    const { logprobs, token_ids: ids } = choices[0];
    expect(logprobs?.content.map(({ token }) => token).join('')).toBe('Four.');
    expect(logprobs?.content[1]).toMatchObject({ logprob: -2, top_logprobs: [{ logprob: -0.5 }] });
    expect(ids?.slice(0, -1)).toEqual(tokenizer.encode('Four.'));
    expect(prompt).toEqual([...rollout.requests[0].contextIds]);
    const chunks = [];
    for await (const chunk of await trainer.client().chat.completions.create({ ...params, stream: true }))
      chunks.push(chunk);
    expect(chunks.at(-1)).toMatchObject({ choices: [{ token_ids: ids }], prompt_token_ids: prompt });
    expect(chunks.filter((chunk) => chunk.prompt_token_ids)).toHaveLength(1);
  });

  test('a stream has the same content in chunks, with calls separate from content', async () => {
    const { trainer, rollout } = talkingRun();
    rollout.says = () => `Let me see.\n${CALL}`;
    const params = { messages: QUESTION, tools: TOOLS, stream: true, stream_options: { include_usage: true } } as const;
    const chunks = [];
    for await (const chunk of await trainer.client().chat.completions.create(params)) chunks.push(chunk);
    const deltas = chunks.flatMap(({ choices }) => choices.map(({ delta }) => delta));
    expect(deltas[0]).toEqual({ role: 'assistant', content: '' });
    expect(deltas.map(({ content }) => content ?? '').join('')).toBe('Let me see.');
    expect(deltas.flatMap(({ tool_calls: calls }) => calls ?? [])).toMatchObject([
      { index: 0, function: { name: 'calculator' } },
    ]);
    expect(chunks.at(-2)!.choices[0].finish_reason).toBe('tool_calls');
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { total_tokens: anyNumber } });
  });
});

test.each([
  [{}, { stop: ['</a>'] }, 'Four'],
  [{}, { stop: ['</a>'], includeStopStrInOutput: true }, 'Four</a>'],
  [{ include_stop_str_in_output: true }, { stop: ['</a>'] }, 'Four</a>'],
  [{ stop: ['r</a>'] }, { stop: ['</a>'] }, 'Fou'],
])("a request with %j under the run's %j is answered in one piece and in chunks with %j", async (more, run, wanted) => {
  const { trainer, rollout } = talkingRun({ change: { rollout: { n: 2, ...run } } });
  rollout.says = () => 'Four</a>';
  const params = { messages: QUESTION, ...more };
  const { choices } = await trainer.client().chat.completions.create(params);
  let streamed = '';
  for await (const chunk of await trainer.client().chat.completions.create({ ...params, stream: true }))
    streamed += chunk.choices[0].delta.content ?? '';
  expect([choices[0].message.content, streamed]).toEqual([wanted, wanted]);
});

test('limits that the engine has lowered are those of the calls', async () => {
  const { config, engine } = talkingRun();
  const lowered = { values: { 'data.maxPromptLength': 20, 'data.maxResponseLength': 10 }, note: '' };
  const client = new ClientTrainer({ config, engine: { ...engine, lowered } }).client();
  const messages: MessageShape[] = [{ role: 'user', content: 'two plus two '.repeat(20) }];
  await expect(client.chat.completions.create({ messages })).rejects.toThrow('but a context holds 30');
});

test('a conversation that no longer fits behind its first prompt starts a new row', async () => {
  const { trainer } = talkingRun();
  const client = trainer.client();
  let messages = QUESTION;
  for (let turn = 0; turn < 3; turn++) {
    const { choices } = await client.chat.completions.create({ messages });
    messages = [...messages, choices[0].message, { role: 'user', content: 'two plus two '.repeat(12) }];
  }
  expect(client.trajectory.rows().map(({ trajectory }) => trajectory.numTurns)).toEqual([2, 1]);
});

test('settings of sampling cannot change while clients sample; an evaluation leaves generation running', async () => {
  const { trainer: run, rollout } = talkingRun();
  expect(() => run.trainer.change({ 'rollout.temperature': 0.7 })).toThrow('while clients make the samples');
  await run.groups.evaluate(() => Promise.resolve());
  expect(rollout.paused).toBe(false);
});

test('after an evaluation, generation is paused again, unless the step has ended meanwhile', async () => {
  const { trainer, rollout } = talkingRun({ change: { rollout: { n: 1 } } });
  const client = trainer.client();
  await client.chat.completions.create({ messages: QUESTION });
  client.trajectory.reward(1);
  await trainer.groups.generate(1);
  const evaluation = (ended: () => Promise<void>) =>
    trainer.groups.evaluate(async (onQueued) => {
      await onQueued();
      await ended();
    });
  await evaluation(() => Promise.resolve());
  expect(rollout.paused).toBe(true);
  await evaluation(() => trainer.groups.run());
  expect(rollout.paused).toBe(false);
});

test('a reset while a step begins leaves the step its groups', async () => {
  const { trainer, rollout } = talkingRun({ change: { rollout: { n: 1 } } });
  const client = trainer.client();
  await client.chat.completions.create({ messages: QUESTION });
  client.trajectory.reward(1);
  rollout.pause = async () => void trainer.groups.reset(undefined, true);
  expect((await trainer.groups.generate(1)).samples).toHaveLength(1);
});

test.each([
  [{ tool_choice: 'required' as const }, 'tool_choice'],
  [{ response_format: { type: 'json_object' as const } }, 'response_format'],
])('%j is refused if the format of the calls cannot be constrained', async (more, param) => {
  const { trainer } = talkingRun({ limits: { toolParser: () => [] } });
  const call = trainer.client().chat.completions.create({ messages: QUESTION, tools: TOOLS, ...more });
  await expect(call).rejects.toMatchObject({ status: 400, param });
});

describe('what a call continues', () => {
  const again = async (change: (reply: MessageShape) => MessageShape[]) => {
    const run = talkingRun();
    const client = run.trainer.client();
    const { choices } = await client.chat.completions.create({ messages: QUESTION });
    await client.chat.completions.create({ messages: change(choices[0].message) });
    return { ...run, client, rows: client.trajectory.rows() };
  };

  test('a call continues the tokens of the reply, which are not encoded again', async () => {
    const { rows, rollout } = await again((reply) => [...QUESTION, reply, { role: 'user', content: 'Sure?' }]);
    const [first, second] = rollout.requests;
    const said = [...tokenizer.encode('Four.'), tokenizer.eosTokenIds[0]];
    const next = tokenizer.encodeContinuation([{ role: 'user', content: 'Sure?' }]);
    expect([...second.contextIds]).toEqual([...first.contextIds, ...said, ...next]);
    expect(second.requestId).toBe(first.requestId); // the second call reuses the cache of the first
    expect(rows).toHaveLength(1);
    const { mask, logProbs } = rows[0].trajectory;
    expect([...mask]).toEqual([...said.map(() => 1), ...[...next].map(() => 0), ...said.map(() => 1)]);
    mask.forEach((m, t) => expect(logProbs[t] < 0).toBe(m === 1));
  });

  test('tool outputs continue after the call, even if the client serialises its arguments differently', async () => {
    const { trainer, rollout } = talkingRun();
    rollout.says = ({ contextIds }) => (tokenizer.decode(contextIds).includes('<tool_call>') ? '4' : CALL);
    const client = trainer.client();
    const { choices } = await client.chat.completions.create({ messages: QUESTION, tools: TOOLS });
    const [call] = choices[0].message.tool_calls!;
    const spaced = { ...call, function: { ...call.function, arguments: '{ "expression": "2+2" }' } };
    const messages: MessageShape[] = [
      ...QUESTION,
      { role: 'assistant', content: null, tool_calls: [spaced] },
      { role: 'tool', tool_call_id: call.id, content: '4' },
    ];
    await client.chat.completions.create({ messages, tools: TOOLS });
    expect(client.trajectory.rows()).toHaveLength(1);
  });

  test('tool outputs that the template drops are refused, and others accepted', async () => {
    const turn = "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}";
    const chatTemplate = `{% for m in messages %}{% if m.role != 'tool' %}${turn}{% endif %}{% endfor %}`;
    const own = new ChatTokenizer(tokenizerJson, { eos_token: '<|im_end|>', chat_template: chatTemplate });
    const { trainer, rollout } = talkingRun({ own });
    rollout.says = () => CALL;
    const client = trainer.client();
    const { choices } = await client.chat.completions.create({ messages: QUESTION, tools: TOOLS });
    const [call] = choices[0].message.tool_calls!;
    const messages: MessageShape[] = [
      ...QUESTION,
      choices[0].message,
      { role: 'tool', tool_call_id: call.id, content: '4' },
    ];
    await expect(client.chat.completions.create({ messages, tools: TOOLS })).rejects.toThrow(
      /^The chat template leaves out tool results, so the model never reads them\. Use a template that writes them: /,
    );
    expect(rollout.requests).toHaveLength(1);
    await client.chat.completions.create({ messages: [...messages.slice(0, 2), ...QUESTION], tools: TOOLS });
  });

  test.each<[string, (reply: MessageShape) => MessageShape[]]>([
    [
      'an edited reply',
      () => [...QUESTION, { role: 'assistant', content: 'Five.' }, { role: 'user', content: 'Sure?' }],
    ],
    [
      'another question',
      (reply) => [{ role: 'user', content: 'What is 3?' }, reply, { role: 'user', content: 'Sure?' }],
    ],
    [
      'a system prompt',
      (reply) => [{ role: 'system', content: 'Be short.' }, ...QUESTION, reply, { role: 'user', content: 'Sure?' }],
    ],
    ['a dropped reply', () => [...QUESTION, { role: 'user', content: 'Sure?' }]],
  ])('%s is a fork, a row of its own', async (_, change) => {
    const { rows, rollout, trainer, client } = await again(change);
    expect(rows).toHaveLength(2);
    expect(rollout.requests[1].requestId).not.toBe(rollout.requests[0].requestId);
    expect(rollout.requests[1].key).not.toEqual(rollout.requests[0].key);
    client.trajectory.reward(1);
    expect(rollout.held.size).toBe(0);
    await trainer.close();
  });

  test('a call with other tools is a fork', async () => {
    const { trainer } = talkingRun();
    const client = trainer.client();
    const { choices } = await client.chat.completions.create({ messages: QUESTION, tools: TOOLS });
    const messages: MessageShape[] = [...QUESTION, choices[0].message, { role: 'user', content: 'Sure?' }];
    await client.chat.completions.create({ messages });
    expect(client.trajectory.rows()).toHaveLength(2);
  });

  test("a fork from an earlier reply shares the reply's tokens as context", async () => {
    const { client, rollout, rows } = await again((reply) => [...QUESTION, reply, { role: 'user', content: 'Sure?' }]);
    expect(rows).toHaveLength(1);
    const reply: MessageShape = { role: 'assistant', content: 'Four.' };
    await client.chat.completions.create({ messages: [...QUESTION, reply, { role: 'user', content: 'Why?' }] });
    const [first, fork] = client.trajectory.rows().map(({ trajectory }) => trajectory);
    const drawn = tokenizer.encode('Four.').length + 1;
    expect([...fork.responseIds.slice(0, drawn)]).toEqual([...first.responseIds.slice(0, drawn)]);
    expect([...fork.mask.slice(0, drawn)]).toEqual(Array(drawn).fill(0)); // trained in the sequence in which it was sampled
    expect(rollout.requests[2].promptLength).toBe(rollout.requests[0].promptLength);
  });

  test('with a template that drops thoughts of earlier turns, calls do not continue them', async () => {
    const chatTemplate =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content }}<|im_end|>\n" +
      '{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}';
    const own = new ChatTokenizer(tokenizerJson, { eos_token: '<|im_end|>', chat_template: chatTemplate });
    const { trainer, rollout } = talkingRun({ own });
    const client = trainer.client();
    for (const [said, rows] of [
      ['Four.', 1],
      ['<think>two</think>Four.', 3],
    ] as const) {
      rollout.says = () => said;
      const { choices } = await client.chat.completions.create({ messages: [{ role: 'user', content: said }] });
      const next: MessageShape[] = [
        { role: 'user', content: said },
        choices[0].message,
        { role: 'user', content: 'Sure?' },
      ];
      await client.chat.completions.create({ messages: next });
      expect(client.trajectory.rows()).toHaveLength(rows);
    }
  });

  test('of two concurrent calls one is a fork', async () => {
    const { trainer, rollout } = talkingRun();
    rollout.waits = () => true;
    const client = trainer.client();
    const both = [1, 2].map(() => client.chat.completions.create({ messages: QUESTION }));
    await expect.poll(() => rollout.underWay).toBe(2);
    expect(() => client.trajectory.reward(1)).toThrow('A call is in flight');
    rollout.go();
    await Promise.all(both);
    expect(client.trajectory.rows()).toHaveLength(2);
    expect(rollout.requests[0].key).not.toEqual(rollout.requests[1].key);
  });
});

test('rewards of turns are given in the order of the calls, also if one of them is a fork', async () => {
  const { trainer } = talkingRun();
  const client = trainer.client();
  const ask = (messages: MessageShape[]) => client.chat.completions.create({ messages });
  const { choices } = await ask(QUESTION);
  await ask([{ role: 'user', content: 'Else?' }]); // a separate row
  await ask([...QUESTION, choices[0].message, { role: 'user', content: 'Sure?' }]); // continues the first row
  expect(client.trajectory.rows().map(({ trajectory }) => trajectory.numTurns)).toEqual([2, 1]);
  client.trajectory.reward(7, { turns: [1, 2, 4] });
  expect(client.trajectory.result?.turns).toEqual([1, 4, 2]);
});

test('rows of a trajectory have one reward, and every sampled token once', async () => {
  const { trainer } = talkingRun();
  const rewarded = async (calls: number) => {
    const client = trainer.client({ group: 'g' });
    for (let call = 0; call < calls; call++)
      await client.chat.completions.create({ messages: [{ role: 'user', content: `${call}?` }] });
    client.trajectory.reward(calls, { turns: Array<number>(calls).fill(1), acc: 1, extra: { calls } });
  };
  await rewarded(3);
  await rewarded(1);
  expect(trainer.groups.complete).toBe(1);
  const { samples, metrics } = await trainer.groups.generate(1);
  const drawn = wholeTrajectories(samples);
  expect(samples.map(({ fork }) => fork)).toEqual([undefined, true, true, undefined]);
  expect(drawn.map(({ reward }) => reward.score)).toEqual([3, 1]);
  const length = tokenizer.encode('Four.').length + 1;
  expect(drawn.map(({ trajectory: { mask } }) => mask.reduce((sum, m) => sum + m, 0))).toEqual([3 * length, length]);
  expect(drawn[0].trajectory).toMatchObject({ numTurns: 3 });
  // The row has three turns, with an untrained token between consecutive turns.
  const row = Array<number>(length).fill(1);
  expect([...drawn[0].trajectory.mask]).toEqual([...row, 0, ...row, 0, ...row]);
  // Limits are those of the rows: none is in the overlong buffer, and the truncated one alone is masked.
  const config = resolveTrainConfig({
    ...{
      name: 'x',
      model: { path: 'x' },
      data: { maxResponseLength: 2 * length },
      reward: { overlongBuffer: { len: length } },
    },
    algorithm: { maskTruncated: true },
  });
  const cut = samples.map((one, s) =>
    s === 1 ? { ...one, trajectory: { ...one.trajectory, stopReason: 'max_tokens' as const } } : one,
  );
  const { rewards, masks } = rowTokens(config, cut, {});
  expect([rewards, masks.map((mask) => mask[0])]).toEqual([
    [3, NaN, NaN, 1],
    [1, 0, 1, 1],
  ]);
  expect(metrics).toMatchObject({
    'client/calls': 4,
    'client/forks': 2,
    'client/trajectories': 2,
    'client/complete_groups': 0,
  });
});

test('a call that is aborted and tried again counts once as a continuation or a fork', async () => {
  const { trainer, rollout } = talkingRun({ change: { rollout: { n: 1 } } });
  const client = trainer.client();
  const { completions } = client.chat;
  const { choices } = await completions.create({ messages: QUESTION });
  const later: MessageShape[][] = [
    [...QUESTION, choices[0].message, { role: 'user', content: 'Sure?' }],
    [{ role: 'user', content: 'Else?' }],
  ];
  for (const messages of later) {
    rollout.waits = () => true;
    const gone = new AbortController();
    const call = completions.create({ messages }, { signal: gone.signal });
    await expect.poll(() => rollout.underWay).toBe(1);
    gone.abort();
    await expect(call).rejects.toThrow('aborted');
    rollout.waits = () => false;
    await completions.create({ messages });
  }
  client.trajectory.reward(1);
  const { metrics } = await trainer.groups.generate(1);
  expect(metrics).toMatchObject({
    ...{ 'client/calls': 3, 'client/aborted_calls': 2, 'client/continuations': 1, 'client/forks': 1 },
  });
});

test('examples/client.ts: an agent with a tool, rewarded', async () => {
  const { trainer, rollout, config } = talkingRun();
  const call = '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 2}}</tool_call>';
  let answers = 4;
  rollout.says = ({ contextIds }) =>
    tokenizer.decode(contextIds).includes('<tool_call>') ? `It is ${answers++}.` : call;
  const { step } = await import('../../examples/client.ts');
  const learner = { config, client: trainer.client.bind(trainer), step: () => trainer.groups.generate(1) };
  const questions = [{ question: 'What is 2 plus 2?', answer: '4' }];
  const { samples, metrics } = await step(stub<Learner>(learner), questions);
  expect(samples.map(({ reward }) => reward.score).sort()).toEqual([0, 1]);
  expect(metrics).toMatchObject({ 'client/calls': 4, 'client/continuations': 2, 'client/forks': 0 });
});

describe('a checkpoint', () => {
  const ask = (client: TrainingClient, ...more: MessageShape[]) =>
    client.chat.completions.create({ messages: [...QUESTION, ...more] });
  const FOUR: MessageShape = { role: 'assistant', content: 'Four.' };
  const SURE: MessageShape = { role: 'user', content: 'Sure?' };
  const vocabSize = tokenizer.vocabSize;

  /**
   * Saves a complete group of two episodes, and a group with a rewarded episode and an open one. The open one has a reply, a fork, and a
   * call in flight.
   */
  async function savedRun(limits: ClientLimits = {}) {
    const run = talkingRun({ limits });
    const { groups } = run.trainer;
    for (const reward of [0, 1]) {
      const client = run.trainer.client({ group: 'complete' });
      await ask(client);
      client.trajectory.reward(reward, { extra: { note: 'kept' } });
    }
    const [rewarded, open] = [run.trainer.client(), run.trainer.client({ name: '/mine' })];
    for (const client of [rewarded, open]) await ask(client);
    rewarded.trajectory.reward(0.25);
    await ask(open, { role: 'assistant', content: 'Five.' }, SURE);
    run.rollout.waits = () => true;
    const underWay = ask(open, FOUR, SURE).catch(() => undefined);
    const state = JSON.parse(JSON.stringify(await groups.save())) as SavedEpisodes;
    const end = async () => {
      await run.trainer.close();
      await underWay;
    };
    return { ...run, state, open: open.trajectory, end };
  }

  test('a checkpoint contains open and waiting episodes, which continue from their tokens', async () => {
    const { trainer, rollout, state, open, end } = await savedRun();
    const later = talkingRun({ limits: { outlives: true } });
    later.trainer.groups.restore(state, { vocabSize });
    const { groups } = later.trainer;
    expect([groups.complete, groups.incomplete, groups.size]).toEqual([1, 1, 4]);
    const before = trainer.groups.episodes;
    for (const [i, episode] of groups.episodes.entries()) {
      const { id, state: how, name, groupName, result, start } = before[i];
      expect({ ...episode }).toMatchObject({ id, state: how, name, groupName, result, start });
      expect(episode.rows().map(({ trajectory }) => trajectory)).toEqual(
        before[i].rows().map(({ trajectory }) => trajectory),
      );
    }
    const going = groups.episodes.find(({ state: how }) => how === 'open')!;
    expect([going.id, going.name]).toEqual([open.id, '/mine']);
    const request = readRequest({ messages: [...QUESTION, FOUR, SURE] }, groups.served);
    await going.call(request);
    // The repeated call equals the call that was in flight: the same tokens, and the same random numbers.
    const { contextIds, key } = rollout.requests.at(-1)!;
    expect(later.rollout.requests).toMatchObject([{ contextIds, key }]);
    going.reward(1);
    expect(groups.complete).toBe(2);
    const { samples, metrics } = await groups.generate(1);
    expect(samples.map(({ reward }) => reward)).toMatchObject([{ score: 0 }, { score: 1 }]);
    expect(samples[0].reward).toMatchObject({ acc: NaN, extra: { note: 'kept' } });
    expect(metrics).toMatchObject({ 'client/calls': 6, 'client/dropped_trajectories': 0 });
    await Promise.all([end(), later.trainer.close()]);
  });

  test('open episodes of an ended process are dropped and counted, and rewarded ones stay', async () => {
    const { state, end } = await savedRun();
    const later = talkingRun();
    later.trainer.groups.restore(state, { vocabSize });
    const { groups } = later.trainer;
    expect(groups.episodes.map(({ state: how }) => how)).toEqual(['rewarded', 'rewarded', 'rewarded']);
    const { metrics } = await groups.generate(1);
    expect(metrics).toMatchObject({ 'client/trajectories': 2, 'client/dropped_trajectories': 1 });
    await Promise.all([end(), later.trainer.close()]);
  });

  test('restoring in a running process keeps its episodes, and restores those that were trained since', async () => {
    const { trainer, state, end } = await savedRun();
    const { groups } = trainer;
    await groups.generate(1);
    expect([groups.complete, groups.size]).toEqual([0, 2]);
    const before = groups.episodes;
    groups.restore(state, { vocabSize });
    expect([groups.complete, groups.incomplete, groups.size]).toEqual([1, 1, 4]);
    expect(groups.episodes.slice(0, 2)).toEqual(before); // the same objects, because their clients hold them
    await end();
  });

  test.each<[string, (state: SavedEpisodes) => void, RegExp]>([
    [
      'a token beyond the vocabulary',
      ({ groups }) => set(groups, 'tokenIds', '////fw=='),
      /drawn of its trainer_state\.json: tokenIds has 2147483647 at token 0/,
    ],
    [
      'arrays of unequal length',
      ({ groups }) => set(groups, 'mask', '1'),
      /drawn of its trainer_state\.json: mask has 1 numbers for 6 tokens/,
    ],
    ['no list', (state) => Object.assign(state, { groups: 1 }), /parts\.inFlight\.groups of its/],
    [
      'a reply beyond its tokens',
      ({ groups }) => (groups[0].members[0].sequences[0].replies[0].tokens = 99),
      /its replies are not/,
    ],
  ])('with %s is refused', async (_, damage, message) => {
    const { state, end } = await savedRun();
    damage(state);
    const later = talkingRun();
    expect(() => later.trainer.groups.restore(state, { vocabSize })).toThrow(message);
    expect(later.trainer.groups.size).toBe(0);
    await end();
  });
});

const set = (groups: SavedEpisodes['groups'], key: string, value: string) =>
  Object.assign(groups[0].members[0].sequences[0].drawn, { [key]: value });

describe('a lost device', () => {
  const gone = new DeviceLostError('unknown', 'pulled out');
  const stop = new AbortController().signal;
  const rewardedPair = async ({ trainer }: ReturnType<typeof talkingRun>) => {
    for (const reward of [0, 1]) {
      const client = trainer.client();
      await client.chat.completions.create({ messages: QUESTION });
      client.trajectory.reward(reward);
    }
  };

  test('a loss ends calls in flight and the wait for a step; the new device has every episode once, and later calls', async () => {
    const run = talkingRun({ limits: { outlives: true } });
    const { groups } = run.trainer;
    const old = run.engine;
    await rewardedPair(run);
    const saved = await groups.save(); // the pair waits in the checkpoint
    await groups.generate(1);
    await rewardedPair(run);
    const { samples: taken } = await groups.generate(2);
    const client = run.trainer.client();
    await client.chat.completions.create({ messages: QUESTION });
    run.rollout.waits = () => true;
    const again = { messages: [...QUESTION, { role: 'assistant' as const, content: 'Four.' }, ...QUESTION] };
    const underWay = client.chat.completions.create(again);
    const waiting = groups.wait(9, stop);
    groups.handleDeviceLoss(old, gone);
    groups.handleDeviceLoss(old, gone);
    groups.restore(undefined, { vocabSize: 0 }); // step 2 fails because of it
    await expect(underWay).rejects.toThrow(gone);
    await expect(waiting).rejects.toThrow(gone);

    const fresh = talkingRun();
    let isAnswered = false;
    const waits = client.chat.completions.create(again).finally(() => (isAnswered = true));
    groups.restore(saved, { vocabSize: vocabSizeOf(run) });
    await new Promise((resolve) => setImmediate(resolve));
    expect([isAnswered, fresh.rollout.requests.length]).toEqual([false, 0]); // the weights are not restored yet
    groups.attach(fresh.engine);
    groups.handleDeviceLoss(old, gone); // a late second report
    expect([groups.version, groups.complete, groups.incomplete]).toEqual([0, 1, 1]); // without the pair of step 1
    await waits;
    expect(fresh.rollout.requests).toHaveLength(1);
    expect(client.trajectory.rows()[0].trajectory.numTurns).toBe(2);
    expect(await groups.ready(stop)).toBe(true);
    const { samples, metrics } = await groups.generate(1);
    expect(samples).toEqual(taken); // the groups that the failed step returned
    expect(metrics).toMatchObject({ 'client/trajectories': 2, 'client/failed_calls': 1 });
    await run.trainer.close();
    expect(fresh.rollout.held.size).toBe(0);
  });

  test('a loss without a new device ends waiting calls', async () => {
    const run = talkingRun({ limits: { outlives: true } });
    run.trainer.groups.handleDeviceLoss(run.engine, gone);
    const waits = run.trainer.client().chat.completions.create({ messages: QUESTION });
    const ended = expect(waits).rejects.toMatchObject({ status: 503, code: 'run_over' });
    await run.trainer.close();
    await ended;
  });
});

const vocabSizeOf = ({ engine }: ReturnType<typeof talkingRun>) => engine.model.config.vocabSize;
