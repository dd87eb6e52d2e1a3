/** Table of errors in a user's own code: the place, the error, and the expected result of the step. */

import type { CustomAdvantage } from '../../src/grpo/advantages/index.ts';
import type { CustomLoss } from '../../src/grpo/losses/types.ts';
import type { GrpoTrainerOptions } from '../../src/grpo/trainerOptions.ts';
import type { AgentLoop } from '../../src/rollout/agent/loop.ts';
import type { AgentSample } from '../../src/rollout/agent/sample.ts';
import type { Task } from '../../src/tasks/task.ts';
import type { Tool } from '../../src/tasks/tool.ts';

/**
 * Expected result of the step. 'refused': one error that matches `says`, and no weight changes. 'skipped': a fault of one sample; an error
 * under trainer.onError: stop, whereas under skip the step continues without the sample. 'not finite': the step reports the fault and
 * changes no weight. 'told': a fault of a tool; the model reads a text that matches `says`, and the step trains. 'trained': no error.
 */
export type Outcome = 'refused' | 'skipped' | 'not finite' | 'told' | 'trained';

export interface Fault {
  name: string;
  outcome: Outcome;
  /** Pattern of the error message, of the step's report, or of the text that the model reads. */
  says?: RegExp;
  /** Reward function that is used for the second sample of a step. */
  reward?: () => unknown;
  loop?: (sample: AgentSample) => unknown;
  tool?: Partial<Tool>;
  task?: Partial<Task>;
  options?: Partial<GrpoTrainerOptions>;
  config?: { actor?: object; rollout?: object; trainer?: object };
}

const thrower = (error: unknown) => () => {
  throw error;
};
/** Everything that can be thrown, with a pattern for the error message about it. */
const THROWN: [string, unknown, RegExp][] = [
  ['an error', new Error('boom'), /boom/],
  ['a text', 'plain text', /plain text/],
  ['null', null, /null/],
  ['undefined', undefined, /undefined/],
  ['a symbol', Symbol('sign'), /sign/],
  ['an object without toString', Object.create(null), /without a readable message/],
  [
    'an error whose message throws',
    Object.defineProperty(new Error(), 'message', { get: thrower(new Error('twice')) }),
    /without a readable message/,
  ],
  ['an error whose message is no text', Object.assign(new Error(), { message: { a: 1 } }), /object Object|readable/],
  [
    'a proxy that refuses everything',
    new Proxy({}, { get: thrower(1), getPrototypeOf: thrower(1), has: thrower(1) }),
    /without a readable message/,
  ],
];
const never = () => new Promise<never>(() => undefined);
const right = { score: 1, acc: 1 };

const REWARDS: [string, () => unknown, RegExp][] = [
  ['undefined', () => undefined, /is undefined\. Return \{ score, acc \}/],
  ['null', () => null, /is null\. Return/],
  ['a text', () => 'good', /is "good"\. Return/],
  ['a number', () => 1, /is 1\. Return/],
  ['a list', () => [1], /is undefined\. Give a finite number/],
  ['an object without score', () => ({}), /is undefined\. Give a finite number/],
  ['no acc', () => ({ score: 1 }), /has the acc undefined/],
  ['a score of text', () => ({ score: '1', acc: 1 }), /is "1"\. Give a finite number/],
  ['1e200', () => ({ score: 1e200, acc: 1 }), /is 1e\+200\. Give a finite number of at most 3\.4e\+38/],
  ['-1e308', () => ({ score: -1e308, acc: 1 }), /is -1e\+308\. Give/],
  ['Infinity', () => ({ score: Infinity, acc: 1 }), /is Infinity\. Give/],
  ["acc 'x'", () => ({ score: 1, acc: 'x' }), /has the acc "x"\. Give 1 for right/],
  ['acc Infinity', () => ({ score: 1, acc: Infinity }), /has the acc Infinity/],
  ['acc true', () => ({ score: 1, acc: true }), /has the acc true/],
  ['a number as pred', () => ({ ...right, pred: 7 }), /has the pred 7/],
  ['extra that is a text', () => ({ ...right, extra: 'x' }), /has the extra "x"/],
  ['an object in extra', () => ({ ...right, extra: { a: {} } }), /has extra\.a \{\}/],
  ['null in extra', () => ({ ...right, extra: { a: null } }), /has extra\.a null/],
  ['Infinity in extra', () => ({ ...right, extra: { a: -Infinity } }), /has extra\.a -Infinity/],
  ['a weight that is a text', () => ({ ...right, weights: { a: 'x' } }), /has weights\.a "x"/],
  ['turns that are a number', () => ({ ...right, turns: 1 }), /has the turns 1/],
  ['too few turns', () => ({ ...right, turns: [] }), /has no number for turn 1 of 1/],
  ['turns of texts', () => ({ ...right, turns: ['x'] }), /has "x" for turn 1 of 1/],
  ['turns without end', () => ({ ...right, turns: [Infinity] }), /has Infinity for turn 1 of 1/],
  [
    'a getter that throws',
    () => Object.defineProperty({ acc: 1 }, 'score', { enumerable: true, get: thrower(new Error('got')) }),
    /got/,
  ],
  ['a promise that rejects with nothing', async () => thrower(undefined)(), /undefined/],
  ['a promise that never resolves', never, /did not resolve in 0\.05 s \(reward\.timeoutS\)/],
  ['then() that throws', () => ({ then: thrower(new Error('then')) }), /then/],
];

const LOOPS: [string, (sample: AgentSample) => unknown, RegExp][] = [
  ['returns nothing', () => undefined, /returned undefined\. Return one of completed/],
  ['returns a reason of its own', () => 'finished', /returned "finished"\. Return one of/],
  ["returns 'error'", () => 'error', /returned "error"\. Return one of/],
  ["returns verl's output", () => ({ response_ids: [1], response_mask: [1, 1] }), /returned \{"response_ids"/],
  ['never resolves', never, /did neither generate, call tools nor end in 0\.05 s \(rollout\.agent\.timeoutS\)/],
  [
    'generates, then never resolves',
    async (sample) => {
      await sample.generate();
      return never();
    },
    /rollout\.agent\.timeoutS/,
  ],
  [
    'leaves null as a message',
    async (sample) => {
      const { stop } = await sample.generate();
      sample.messages.push(null as never);
      return stop ?? 'completed';
    },
    /left an invalid message, number 2 of 2/,
  ],
  [
    'leaves a message of numbers',
    async (sample) => {
      sample.messages.push({ role: 'user', content: 5 } as never);
      return 'completed';
    },
    /left an invalid message, number 1 of 1/,
  ],
  [
    'takes the messages away',
    (sample) => {
      Object.assign(sample, { messages: undefined });
      return 'completed';
    },
    /agent loop/,
  ],
  ['calls no tools', (sample) => sample.callTools(undefined as never), /agent loop/],
  ['calls null', (sample) => sample.callTools([null] as never), /agent loop/],
  ['says nothing', (sample) => sample.say(undefined as never), /agent loop|left as message/],
  [
    'generates at a temperature of its own',
    (sample) => sample.generate({ temperature: 2 } as never),
    /generate\(\) was given temperature/,
  ],
  ['generates -1 tokens', (sample) => sample.generate({ maxNewTokens: -1 }), /generate\(\) was given maxNewTokens -1/],
  ['generates with null', (sample) => sample.generate(null as never), /agent loop/],
];

/** Faulty tools. The outcome is 'told' by default, and another one if the user's code is to blame. */
const TOOLS: [string, Partial<Tool>, RegExp, Outcome?][] = [
  ['never resolves', { execute: never }, /^Error: fault did not answer in 0\.05 s$/],
  ['returns undefined', { execute: () => undefined as never }, /^Tool "fault" returned undefined/, 'refused'],
  ['returns null', { execute: () => null }, /^null$/],
  ['returns a number', { execute: () => 7 }, /^7$/],
  ['returns a number as text', { execute: () => ({ text: 5 }) }, /^5$/],
  [
    'gives the reward NaN',
    { execute: () => ({ text: 'a', reward: NaN }) },
    /^Tool "fault" returned the reward NaN/,
    'refused',
  ],
  [
    'gives a reward without end',
    { execute: () => ({ text: 'a', reward: Infinity }) },
    /^Tool "fault" returned the reward/,
    'refused',
  ],
  ['has a getter that throws', { execute: () => Object.defineProperty({}, 'text', { get: thrower(null) }) }, /^\{\}$/],
  ['returns a proxy that refuses', { execute: () => new Proxy({}, { get: thrower(new Error('no')) }) }, /^Error: no/],
  ['returns a function', { execute: () => () => 1 }, /^Tool "fault" returned a function/, 'refused'],
  ['rejects with nothing', { execute: async () => thrower(undefined)() }, /^Error: undefined/],
  ['fails at every try', { execute: thrower(new Error('again')), retries: 2 }, /^Error: again/],
  ['cannot be made', { create: thrower(new Error('no state')), execute: () => 'a' }, /^Error: no state/],
  ['is made for ever', { create: never, execute: () => 'a' }, /^Error: fault did not answer/],
  ['cannot be released', { create: () => ({}), execute: () => 'a', release: thrower(null) }, /^a$/],
  [
    'is rewarded by a text',
    { create: () => ({}), execute: () => 'a', calcReward: () => 'x' as never },
    /fault/,
    'refused',
  ],
  ['is rewarded by NaN', { create: () => ({}), execute: () => 'a', calcReward: () => NaN }, /fault/, 'refused'],
  ['is rewarded for ever', { create: () => ({}), execute: () => 'a', calcReward: never }, /^a$/],
  ['says 10 MB', { execute: () => 'x'.repeat(1e7) }, /^x{256}\.\.\.\(truncated\)\.\.\.$/],
  ['says nothing', { execute: () => '' }, /^$/],
  ['says control tokens', { execute: () => '<|im_end|><|im_start|>' }, /^<\|im_end\|><\|im_start\|>$/],
  ['says a call', { execute: () => '<tool_call>{"name": "fault", "arguments": {}}</tool_call>' }, /^<tool_call>/],
  ['says lone surrogates', { execute: () => 'a\ud800b\udc00' }, /^a/],
  ['says NUL', { execute: () => 'a\0b' }, /^a\0b$/],
  ['says broken bytes', { execute: () => Uint8Array.of(0xff, 0xfe, 0x41, 0xc3, 0x28) }, /A/],
];

/** Returns arrays as long as the tokens, filled with one value. */
const filled =
  (value: number): CustomLoss =>
  ({ logProbs }) => ({ dLogProbs: new Float32Array(logProbs.length).fill(value) });
const LOSSES: [string, unknown, RegExp, Outcome?][] = [
  ['returns nothing', () => undefined, /^The loss returned no array as dLogProbs/],
  ['returns a promise', () => Promise.resolve({}), /^The loss returned no array as dLogProbs/],
  ['never resolves', never, /^The loss did not resolve in 0\.05 s \(reward\.timeoutS\)/],
  [
    'returns one value',
    () => ({ dLogProbs: new Float32Array(1) }),
    /^The loss returned 1 values of dLogProbs for \d+ tokens/,
  ],
  [
    'returns too many',
    ({ logProbs }: { logProbs: Float32Array }) => ({ dLogProbs: new Float32Array(logProbs.length + 1) }),
    /values of dLogProbs for/,
  ],
  [
    'returns a wrong dEntropy',
    ({ logProbs }: { logProbs: Float32Array }) => ({ dLogProbs: logProbs, dEntropy: [1] }),
    /1 values of dEntropy/,
  ],
  [
    'reports a text',
    ({ logProbs }: { logProbs: Float32Array }) => ({ dLogProbs: logProbs, metrics: { a: 'x' } }),
    /returned a as a string/,
  ],
  [
    'has a text as loss',
    ({ logProbs }: { logProbs: Float32Array }) => ({ dLogProbs: logProbs, loss: 'x' }),
    /returned loss as a string/,
  ],
  ['is NaN', filled(NaN), /actor\/grad_norm is NaN/, 'not finite'],
  ['has no end', filled(Infinity), /actor\/grad_norm is/, 'not finite'],
];

const perToken = (value: unknown): CustomAdvantage =>
  (({ masks }) => masks.map((mask) => Array.from(mask, () => value))) as CustomAdvantage;
const ADVANTAGES: [string, unknown, RegExp, Outcome?][] = [
  ['returns nothing', () => undefined, /^The advantage estimator returned no list of arrays/],
  ['returns a promise', () => Promise.resolve([]), /returned no list of arrays/],
  ['returns too few', () => [], /returned 0 arrays\. Return one array of numbers for each of the 4 samples/],
  [
    'returns arrays that are too short',
    ({ masks }: { masks: unknown[] }) => masks.map(() => []),
    /returned 0 values for the \d+ tokens of sample 0/,
  ],
  ['returns null in them', ({ masks }: { masks: unknown[] }) => masks.map(() => null), /returned no values for the/],
  ['returns texts', perToken('x'), /returned no number for token 0 of sample 0/],
  ['returns holes', perToken(undefined), /returned no number for token 0/],
  ['is NaN', perToken(NaN), /the advantage of token 0 is NaN/, 'not finite'],
  ['has no end', perToken(-Infinity), /the advantage of token 0 is -Infinity/, 'not finite'],
  ['is too large for float32', perToken(1e200), /the advantage of token 0 is 1e\+200/, 'not finite'],
];

const PROBLEMS: [string, () => unknown, RegExp][] = [
  ['nothing', () => undefined, /^Training problem 0 of task "user" has no messages/],
  ['a promise', () => Promise.resolve({}), /has no messages/],
  ['no messages', () => ({ id: 'a', messages: [] }), /has no messages/],
  [
    'a message of numbers',
    () => ({ id: 'a', messages: [{ role: 'user', content: 5 }] }),
    /has no messages that can be read/,
  ],
  ['null as a message', () => ({ id: 'a', messages: [null] }), /has no messages that can be read/],
  [
    'a prompt that does not fit',
    () => ({ id: 'a', messages: [{ role: 'user', content: 'a b c '.repeat(500) }] }),
    /has a prompt of \d+ tokens/,
  ],
];

const loopOf = (loop: (sample: AgentSample) => unknown) => loop as AgentLoop;

export const FAULTS: Fault[] = [
  ...REWARDS.map(([name, reward, says]) => ({
    name: `a reward that is ${name}`,
    outcome: 'skipped' as const,
    reward,
    says,
  })),
  ...THROWN.map(([name, error, says]) => ({
    name: `a reward that throws ${name}`,
    outcome: 'skipped' as const,
    reward: thrower(error),
    says,
  })),
  ...LOOPS.map(([name, loop, says]) => ({
    name: `an agent loop that ${name}`,
    outcome: 'skipped' as const,
    loop,
    says,
  })),
  ...THROWN.map(([name, error, says]) => ({
    name: `an agent loop that throws ${name}`,
    outcome: 'skipped' as const,
    loop: thrower(error),
    says,
  })),
  ...TOOLS.map(([name, tool, says, outcome = 'told' as const]) => ({
    name: `a tool that ${name}`,
    outcome,
    tool,
    says,
  })),
  ...THROWN.map(([name, error, says]) => ({
    name: `a tool that throws ${name}`,
    outcome: 'told' as const,
    tool: { execute: thrower(error) },
    says,
  })),
  ...LOSSES.map(([name, loss, says, outcome = 'refused' as const]) => ({
    name: `a loss that ${name}`,
    outcome,
    options: { loss: loss as CustomLoss },
    says,
  })),
  ...THROWN.map(([name, error, says]) => ({
    name: `a loss that throws ${name}`,
    outcome: 'refused' as const,
    options: { loss: thrower(error) },
    says,
  })),
  ...ADVANTAGES.map(([name, advantage, says, outcome = 'refused' as const]) => ({
    name: `an advantage that ${name}`,
    outcome,
    options: { advantage: advantage as CustomAdvantage },
    says,
  })),
  ...THROWN.map(([name, error, says]) => ({
    name: `an advantage that throws ${name}`,
    outcome: 'refused' as const,
    options: { advantage: thrower(error) },
    says,
  })),
  ...PROBLEMS.map(([name, train, says]) => ({
    name: `a problem that is ${name}`,
    outcome: 'refused' as const,
    task: { train: train as Task['train'] },
    says,
  })),
  ...THROWN.map(([name, error, says]) => ({
    name: `a problem whose making throws ${name}`,
    outcome: 'refused' as const,
    task: { train: thrower(error) },
    says,
  })),
  ...THROWN.map(([name, error, says]) => ({
    name: `onSample throws ${name}`,
    outcome: 'refused' as const,
    options: { onSample: thrower(error) },
    says,
  })),
  {
    name: 'a tool parser that throws',
    outcome: 'skipped',
    loop: loopOf(async (s) => (await s.generate()).stop ?? 'completed'),
    options: { toolParser: thrower(new Error('cannot read')) },
    tool: {},
    says: /The tool parser threw "cannot read"/,
  },
  {
    name: 'a tool parser that returns null',
    outcome: 'skipped',
    loop: loopOf(async (s) => (await s.generate()).stop ?? 'completed'),
    options: { toolParser: () => null as never },
    tool: {},
    says: /The tool parser returned no list of calls/,
  },
  {
    name: 'a loop that overrides the trajectory',
    outcome: 'trained',
    loop: async (s) => {
      s.trajectory = () => ({}) as never;
      return (await s.generate()).stop ?? 'completed';
    },
  },
  {
    name: 'a sample that ends by its time limit while the loop hangs',
    outcome: 'trained',
    loop: async (s) => {
      await s.generate();
      return never();
    },
    config: { rollout: { multiTurn: { sampleTimeoutS: 0.3 }, agent: { timeoutS: 60 } } },
  },
];
