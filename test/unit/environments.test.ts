/** Tests environments without a GPU: what a sample can see, what a dataset row can configure, errors, and that all states are freed. */

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { InputError, UserCodeError } from '../../src/errors.ts';
import { turnLeaveOneOut } from '../../src/grpo/advantages/turns.ts';
import { packMiniBatch } from '../../src/grpo/update/batch.ts';
import type { AgentLoopInput } from '../../src/rollout/agent/types.ts';
import { SampleRecord } from '../../src/rollout/agent/record.ts';
import { checkEnvironments, defineEnvironment, type Environment } from '../../src/tasks/environments/environment.ts';
import { environmentTask, partsOf } from '../../src/tasks/environments/environmentTask.ts';
import { conversationTokens } from '../../src/extensions/sft/conversationTokens.ts';
import type { Problem, Task } from '../../src/tasks/task.ts';
import { calculator } from '../../src/tasks/tools/calculator.ts';
import { run, samplesOf, ScriptedTurns, tokenizer } from '../scriptedTurns.ts';

const none = { type: 'object', properties: {} } as const;
const call = (name: string, args: object = {}) => `<tool_call>${JSON.stringify({ name, arguments: args })}</tool_call>`;

/** Events of each state. */
let log: string[] = [];
const counter = defineEnvironment({
  name: 'counter',
  reset: ({ id }, { sampleId }) => {
    log.push(`reset ${sampleId}`);
    return { state: { n: 0, sampleId }, observation: `Count ${id}.` };
  },
  step: (text, { state }) => {
    state.n++;
    log.push(`step ${text}`);
    return { text: `n ${state.n}`, reward: 0.25, done: text === 'stop' };
  },
  tools: {
    add: {
      description: '',
      parameters: { type: 'object', properties: { by: { type: 'integer' } }, required: ['by'] },
      execute: ({ by }, { state }) => ({ text: `n ${(state.n += by)}`, reward: by }),
    },
    read: { description: '', parameters: none, execute: (_, { state }) => `n is ${state.n}` },
    fail: {
      description: '',
      parameters: none,
      execute: () => {
        throw new Error('no luck');
      },
    },
  },
  reward: ({ n }) => n,
  close: ({ sampleId }) => void log.push(`close ${sampleId}`),
});
const saving: Environment = { ...counter, save: (state) => state, restore: (saved) => structuredClone(saved) };

const problem: Problem = { id: 'p', messages: [{ role: 'user', content: 'Go.' }], answer: '' };
const play = (turns: string[], environment: Environment = counter, more: Parameters<typeof run>[1] = {}) => {
  log = [];
  return run(turns, { problem, tools: [...environment.tools], environment, ...more });
};

const taskOf = (environments: [Environment, ...Environment[]], more: Partial<Task> = {}): Task =>
  environmentTask({ name: 'mine', train: () => problem, heldOut: () => [], ...more, environments });

describe('a sample', () => {
  test('tools and steps share one state; tokens equal those of the same conversation, with observations outside the loss', async () => {
    const turns = [call('add', { by: 2 }), 'hm', call('read')];
    const { trajectory, messages, toolStates, turnRewards, observation } = await play([...turns, 'stop'], counter, {
      limits: { maxResponseLength: 1000, contextLength: 2000 },
    });
    expect(messages.map(({ role, content }) => `${role}: ${content}`)).toEqual([
      ...[`assistant: ${turns[0]}`, 'tool: n 2', 'assistant: hm', 'user: n 3', `assistant: ${turns[2]}`],
      ...['tool: n is 3', 'assistant: stop', 'user: n 4'],
    ]);
    expect(trajectory).toMatchObject({ stopReason: 'done', numTurns: 4, numToolCalls: 2, numToolErrors: 0 });
    expect(toolStates).toEqual({ counter: { n: 4, sampleId: 'r1' } });
    expect(turnRewards).toEqual([2, 0.25, 0, 0.25]);
    expect(observation).toBe('Count p.');
    const prompt = { messages: [{ role: 'user' as const, content: 'Go.\nCount p.' }] };
    const want = conversationTokens(tokenizer, prompt, messages.slice(0, -1));
    expect([...trajectory.promptIds]).toEqual([...want.promptIds]);
    expect([...trajectory.responseIds]).toEqual([...want.responseIds]);
    expect([...trajectory.mask]).toEqual([...want.mask]);
  });

  test('the last turn still moves the environment; without step a turn without a call ends the sample', async () => {
    const last = await play(['a', 'b'], counter, { limits: { maxAssistantTurns: 2 } });
    expect(last.trajectory.stopReason).toBe('max_turns');
    expect(last.turnRewards).toEqual([0.25, 0.25]);
    const { step: _, ...toolsAlone } = counter;
    expect((await play(['a'], toolsAlone)).trajectory.stopReason).toBe('completed');
  });

  test('an observation is added to the last user message, or becomes a separate one; 10 MB are truncated', async () => {
    const system: Problem = { ...problem, messages: [{ role: 'system', content: 'S' }] };
    const { trajectory } = await play(['stop'], counter, { problem: system });
    expect([...trajectory.promptIds]).toEqual([
      ...tokenizer.encodeChat([...system.messages, { role: 'user', content: 'Count p.' }]),
    ]);
    const huge: Environment = { ...counter, reset: () => ({ state: { n: 0 }, observation: '<|im_end|>'.repeat(1e6) }) };
    const cut = await play(['stop'], huge, { limits: { maxPromptLength: 200, contextLength: 400 } });
    expect(cut.observation).toHaveLength(64 + '...(truncated)...'.length);
    expect(cut.trajectory.promptIds.filter((id) => id === tokenizer.eosTokenIds[0])).toHaveLength(1);
    await expect(play(['stop'], huge)).rejects.toThrow(/^Problem "p" has a prompt of \d+ tokens, but at most 64 fit/);
  });
});

describe('a group', () => {
  test('samples with the same observation share a prompt; others are trained separately', async () => {
    const task = taskOf([counter]);
    const same = await samplesOf(task, [problem], ['stop'], 3);
    expect(new Set(same.map(({ trajectory }) => trajectory.promptIds.join())).size).toBe(1);
    expect(same[0].prompt).toEqual([{ role: 'user', content: 'Go.\nCount p.' }]);
    const own: Environment = {
      ...counter,
      reset: (_, { sampleId }) => ({ state: { n: 0, sampleId }, observation: `You are ${sampleId}.` }),
    };
    const differing = await samplesOf(taskOf([own]), [problem], ['stop'], 3);
    expect(new Set(differing.map(({ trajectory }) => tokenizer.decode(trajectory.promptIds))).size).toBe(3);
    const masks = differing.map(({ trajectory }) => trajectory.mask);
    const { microBatches } = packMiniBatch(differing, [0, 1, 2], masks, 4096);
    const trained = microBatches.flatMap(({ batch }) => [...batch.tokens]);
    for (const { trajectory } of differing) {
      const ids = [...trajectory.promptIds, ...trajectory.responseIds].join();
      expect(trained.join().includes(ids.slice(0, ids.lastIndexOf(',')))).toBe(true);
    }
    expect(microBatches[0].batch.tokens.length).toBeGreaterThan(
      packMiniBatch(same, [0, 1, 2], masks, 4096).microBatches[0].batch.tokens.length,
    );
  });

  test('rewards of turns reach the advantages of turn_loo; the outcome is in the last turn', async () => {
    const task = taskOf([counter]);
    const [one] = await samplesOf(task, [problem], [call('add', { by: 2 }), 'stop']);
    expect(one.reward).toEqual({ score: 5.25, acc: 3, turns: [2, 3.25] });
    const [two] = await samplesOf(task, [problem], ['stop']);
    expect(two.reward).toEqual({ score: 1.25, acc: 1, turns: [1.25] });
    const [first, second] = turnLeaveOneOut([one.reward.turns!, two.reward.turns!], [0, 0]);
    expect([...first]).toEqual([5.25 - 1.25, 3.25 - 1.25]);
    expect([...second]).toEqual([1.25 - 5.25]);
  });

  test('an outcome can be a number, a Reward, or undefined; anything else is refused by name', async () => {
    const withReward = (reward: Environment['reward']) => {
      const { reward: _, ...rest } = counter;
      return samplesOf(taskOf([reward ? { ...rest, reward } : rest]), [problem], ['a', 'stop']);
    };
    expect((await withReward(undefined))[0].reward).toEqual({ score: 0.5, acc: 0.5, turns: [0.25, 0.25] });
    expect((await withReward(() => ({ score: 1, acc: 1, pred: 'x' })))[0].reward).toEqual({
      score: 1.5,
      acc: 1,
      pred: 'x',
      turns: [0.25, 1.25],
    });
    const asItIs = { score: 1, acc: 1, turns: [0.5, 0.5] };
    expect((await withReward(() => Promise.resolve(asItIs)))[0].reward).toEqual(asItIs);
    const wrong = (value: unknown) => expect(withReward(() => value as number)).rejects;
    await wrong('5').toThrow('The reward of problem "p" is "5". Return { score, acc }, or a promise of it.');
    await wrong({ score: 1, acc: 1, turns: [1] }).toThrow(/^The reward of problem "p" has no number for turn 2 of 2/);
    await wrong({ score: Infinity, acc: 1 }).toThrow(/^The reward of problem "p" is Infinity\. Give a finite number/);
  });
});

describe('a row', () => {
  const other = defineEnvironment({
    name: 'other',
    reset: () => ({ state: {} }),
    tools: { end: { description: '', parameters: none, execute: () => ({ text: 'bye', done: true }) } },
  });
  const task = taskOf([counter, other], { tools: [calculator] });

  test('a row can name its environment and its tools', async () => {
    const problems: Problem[] = [
      { ...problem, environment: 'counter', tools: ['read'] },
      { ...problem, environment: 'other' },
    ];
    expect(problems.map((row) => partsOf(task, row).tools.map(({ name }) => name))).toEqual([
      ['read'],
      ['calculator', 'end'],
    ]);
    const [first, second] = await samplesOf(task, problems, [call('end')]);
    expect(first.messages[1].content).toBe('Error: no tool "end"; there is read');
    expect(second.messages.map(({ content }) => content)).toEqual([call('end'), 'bye']);
    expect(partsOf({ name: 't', tools: [calculator] }, { ...problem, tools: [] })).toEqual({ tools: [] });
  });

  test.each<[Partial<Record<keyof Problem, unknown>>, string]>([
    [{}, 'Problem "p" names no environment; the environments of task "mine" are: counter, other. Name one of them.'],
    [
      { environment: 'otter' },
      'Problem "p" names the environment "otter"; the environments of task "mine" are: counter, other. Name one of them.',
    ],
    [
      { environment: 7 },
      'Problem "p" names the environment 7; the environments of task "mine" are: counter, other. Name one of them.',
    ],
    [
      { environment: 'other', tools: ['read'] },
      'Problem "p" names the tool "read"; the tools of task "mine" are: calculator, end. Name one of them.',
    ],
    [
      { environment: 'other', tools: 'end' },
      'Problem "p" has the tools "end"; the tools of task "mine" are: calculator, end. Give a list of names.',
    ],
  ])('%j is one sentence, and nothing is started', async (row, message) => {
    log = [];
    await expect(samplesOf(task, [{ ...problem, ...row }], ['a'])).rejects.toThrow(new InputError(message));
    expect(log).toEqual([]);
  });

  test('a task without environments refuses a row that names one, and one name for two things', () => {
    expect(() => partsOf({ name: 't' }, { ...problem, environment: 'counter' })).toThrow(
      'Problem "p" names the environment "counter"; the environments of task "t" are: none.',
    );
    expect(() =>
      partsOf({ name: 't', tools: [{ ...calculator, name: 'read' }], environments: [counter] }, problem),
    ).toThrow('Task "t" has a tool "read", a name that its environment "counter" uses too. Rename one of them.');
  });
});

test('a definition at odds with itself is refused', () => {
  const define = (more: object) => () =>
    defineEnvironment({ name: 'x', reset: () => ({ state: 0 }), step: () => '', ...more });
  expect(define({ name: 'a b' })).toThrow(
    'An environment is named "a b"; allowed: 1 to 64 letters, digits, ., _ and -.',
  );
  const checked =
    (...environments: unknown[]) =>
    () =>
      checkEnvironments('Task "t"', environments);
  const plain = { ...define({})(), step: () => '' };
  expect(checked(plain)()).toBeUndefined();
  expect(checked(plain, plain)).toThrow('Task "t" has two environments named "x". Rename one of them.');
  expect(() => checkEnvironments('Task "t"', { plain })).toThrow(
    /^Task "t" has the environments \{.*\. Give a list of/,
  );
  for (const wrong of [null, 'shop']) expect(checked(wrong)).toThrow(/^An environment is .*\. Give \{ name, reset, /);
  expect(checked({ ...plain, name: undefined })).toThrow('An environment is named undefined; allowed: 1 to 64');
  expect(checked({ ...plain, tools: undefined })).toThrow('Environment "x" has the tools undefined. Give a list');
  expect(checked({ ...plain, tools: [null] })).toThrow('A tool is null. Give {');
  expect(checked({ ...plain, reset: 7 })).toThrow('Environment "x" has no function "reset". Give reset(problem)');
  for (const field of ['step', 'reward', 'close'])
    expect(checked({ ...plain, [field]: 'y' })).toThrow(`Environment "x" has "y" as "${field}". Give a function, or`);
  expect(define({ step: undefined })).toThrow('Environment "x" has neither step nor tools. Give it one of them.');
  expect(define({ save: () => 0 })).toThrow('Environment "x" has save without restore. Give both or none.');
  expect(
    define({ tools: { t: { description: '', parameters: { ...none, required: ['x'] }, execute: () => '' } } }),
  ).toThrow(/^Tool "t"/);
});

describe('hostile environments', () => {
  const WHAT = 'The reset of environment "counter" for problem "p"';
  const EXPECTED = 'Return { state, observation }, the observation a text, or absent.';
  const withReset = (reset: () => unknown): Environment => ({ ...counter, reset: reset as Environment['reset'] });

  test.each<[string, () => unknown, RegExp]>([
    [
      'throws',
      () => {
        throw new Error('boom');
      },
      /^The reset of environment "counter" for problem "p" threw "boom" \(at .*\)\. Return/,
    ],
    ['rejects', () => Promise.reject(new Error('boom')), /threw "boom"/],
    ['hangs', () => new Promise(() => {}), /did not resolve in 0\.05 s \(rollout\.multiTurn\.toolTimeoutS\)\. Return/],
    ['returns nothing', () => undefined, /returned undefined\. Return/],
    ['returns a text', () => 'You are here.', /returned "You are here\."\. Return/],
    ['has no state', () => ({ observation: 'x' }), /returned \{"observation":"x"\}\. Return/],
    ['has a number for an observation', () => ({ state: 1, observation: 2 }), /returned \{"state":1,"observation":2\}/],
  ])('a reset that %s ends the run by one sentence, or is left out alone', async (_, reset, message) => {
    const task = taskOf([withReset(reset)]);
    const failing = samplesOf(task, [problem], ['a'], 2);
    await expect(failing).rejects.toThrow(message);
    await expect(failing).rejects.toThrow(UserCodeError);
    await expect(failing).rejects.toThrow(WHAT);
    await expect(failing).rejects.toThrow(EXPECTED);
    const skipped = await samplesOf(task, [problem], ['a'], 2, { onError: 'skip' });
    expect(skipped.map(({ trajectory, fault }) => [trajectory.stopReason, fault?.message.includes(WHAT)])).toEqual(
      Array(2).fill(['error', true]),
    );
  });

  test('an error of a step or a tool is reported to the model, or ends the sample if configured', async () => {
    const step = () => {
      throw new Error('down');
    };
    const told = await play(['a', call('fail'), 'b', 'c', 'd'], { ...counter, step });
    expect(told.messages.map(({ content }) => content).filter((_, i) => i % 2 === 1)).toEqual([
      'Error: down',
      'Error: no luck',
      ...Array<string>(3).fill('Error: down'),
    ]);
    expect(told.trajectory).toMatchObject({ stopReason: 'max_turns', numToolErrors: 5, numToolCalls: 1 });
    // The observation of the reset is an output, too.
    expect(told.trajectory).toMatchObject({ numToolOutputs: 6, numTruncatedOutputs: 0 });
    const short = { maxResponseLength: 4, truncateSide: 'left' } as const;
    const cut = await play(['a'], { ...counter, ...short, step }, { limits: { maxAssistantTurns: 1 } });
    expect(cut.trajectory).toMatchObject({ numToolOutputs: 2, numTruncatedOutputs: 2 });
    const stopped = await play(['a'], { ...counter, step }, { limits: { onToolFailure: 'stop' } });
    expect(stopped.trajectory.stopReason).toBe('tool_failure');
    const limits = { maxAssistantTurns: 1 };
    const board = await play(['stop'], { ...counter, step: () => ({ board: [1, 0] }) }, { limits });
    expect(board.messages[1].content).toBe('{"board":[1,0]}');
    expect(log).toEqual(['reset r1', 'close r1']);
    const nothing = play(['stop'], { ...counter, step: () => undefined as unknown as string }, { limits });
    await expect(nothing).rejects.toThrow('Tool "counter" returned undefined');
    expect(log).toEqual(['reset r1', 'close r1']);
  });

  test('a reset that answers after its time is freed when it does', async () => {
    let answer = (_: { state: unknown }) => {};
    const late = withReset(() => new Promise((resolve) => (answer = resolve as typeof answer)));
    await expect(play(['a'], late)).rejects.toThrow('did not resolve');
    expect(log).toEqual([]);
    answer({ state: { sampleId: 'late' } });
    await new Promise((resolve) => setImmediate(resolve));
    expect(log).toEqual(['close late']);
  });
});

test('however a sample ends, its state is closed exactly once, after its last use', async () => {
  const endings = ['turn', 'engine', 'abort', 'timeout', 'tool', 'tokens', 'turns', 'close', 'prompt'] as const;
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...endings), fc.integer({ min: 0, max: 3 }), async (ending, at) => {
      const ended = new AbortController();
      const used: string[] = [];
      const environment: Environment = {
        ...counter,
        reset: () => {
          used.push('reset');
          return { state: {}, observation: ending === 'prompt' ? 'x '.repeat(200) : 'Go.' };
        },
        step: (text) => {
          used.push('step');
          if (text !== 'last') return 'on';
          if (ending === 'abort') ended.abort();
          if (ending === 'tool') throw new Error('x');
          if (ending === 'timeout' || ending === 'abort') return new Promise(() => {});
          return { text: 'bye', done: ending === 'turn' || ending === 'close' };
        },
        close: () => {
          used.push('close');
          if (ending === 'close') throw new Error('x');
        },
      };
      const turns = [...Array<string>(at).fill('on'), 'last', 'more', 'more'];
      const engine = new ScriptedTurns(turns);
      const answer = engine.generate.bind(engine);
      if (ending === 'engine')
        engine.generate = (request) =>
          engine.requests.length === at ? Promise.reject(new Error('lost')) : answer(request);
      const limits: Partial<AgentLoopInput['limits']> = {
        maxResponseLength: ending === 'tokens' ? 12 : 400,
        contextLength: 500,
        maxAssistantTurns: ending === 'turns' ? at + 1 : at + 2,
        onToolFailure: 'stop',
        toolTimeoutMs: 5,
        ...(ending === 'prompt' && { maxToolResponseLength: 1000 }),
      };
      const sample = run(turns, { problem, tools: [], environment, engine, limits, signal: ended.signal });
      if (ending === 'engine' || ending === 'prompt') await expect(sample).rejects.toThrow();
      else await sample;
      expect(used.filter((what) => what === 'reset')).toHaveLength(1);
      expect(used.filter((what) => what === 'close')).toHaveLength(1);
      expect(used.at(-1)).toBe('close');
    }),
    { numRuns: 60 },
  );
});

describe('a checkpoint of a sample in flight', () => {
  /** Plays two turns, saves the environment's state, and continues in a new sample. */
  async function resumed(environment: Environment) {
    const turns = [call('add', { by: 2 }), 'hm', call('read'), 'stop'];
    const limits = { maxResponseLength: 1000, contextLength: 2000 };
    const whole = await play(turns, environment, { limits });
    const record = new SampleRecord();
    const engine = new ScriptedTurns(turns);
    const answer = engine.generate.bind(engine);
    let arrived = () => {};
    const third = new Promise<void>((resolve) => (arrived = resolve));
    engine.generate = (request) => {
      if (engine.requests.length < 2) return answer(request);
      arrived();
      return new Promise(() => {});
    };
    void play(turns, environment, { record, engine, limits });
    await third;
    const saved = JSON.parse(JSON.stringify(await record.save(undefined))) as Awaited<ReturnType<typeof record.save>>;
    for (const entry of saved.received)
      if ('generation' in entry) {
        const { tokenIds, logProbs } = entry.generation;
        entry.generation.tokenIds = Uint32Array.from(Object.values(tokenIds));
        entry.generation.logProbs = Float32Array.from(Object.values(logProbs));
      }
    const again = await play(turns.slice(2), environment, { record: new SampleRecord(saved), limits });
    expect(again.messages).toEqual(whole.messages);
    expect(again.trajectory.promptIds).toEqual(whole.trajectory.promptIds);
    expect(again.trajectory.responseIds).toEqual(whole.trajectory.responseIds);
    expect(again.turnRewards).toEqual(whole.turnRewards);
    expect(again.toolStates).toEqual(whole.toolStates);
    return log;
  }

  test('an environment with save continues from the saved state', async () => {
    expect(await resumed(saving)).toEqual(['step stop', 'close r1']);
  });

  test('an environment without save is reset and played again up to the same state', async () => {
    expect(await resumed(counter)).toEqual(['reset r1', 'step hm', 'step stop', 'close r1']);
  });
});
