/**
 * Tests a checkpoint with samples in flight: partial rollouts in the middle of turns, constrained calls and stop strings, tools with
 * states, and a user's own agent loop. A run resumed from it must equal the undisturbed run, bit for bit.
 */
import { readFileSync } from 'node:fs';
import { afterEach, expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { Checkpoint } from '../../src/grpo/types.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import type { DrawnSoFar, GenerateRequest } from '../../src/rollout/types.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { registerAgentLoop } from '../../src/rollout/agent/loop.ts';
import { gsm8kTokenizer } from '../gsm8kTokenizer.ts';
import { defineEnvironment } from '../../src/tasks/environments/environment.ts';
import type { Task } from '../../src/tasks/task.ts';
import { defineTool } from '../../src/tasks/tool.ts';
import { calculator } from '../../src/tasks/tools/calculator.ts';
import { readBack, scriptedEngine, useSlowClock, withoutTimes } from '../scriptedRuns.ts';

const { tokenizer: tokenizerJson, config: tokenizerConfigJson } = gsm8kTokenizer;
const OPEN = new ChatTokenizer(tokenizerJson, tokenizerConfigJson).encode('<tool_call>')[0];

/** Numbers of tool calls and of restored tool states. A tool whose state was saved needs no second call. */
const used = { ledger: 0, tally: 0, restored: 0 };
afterEach(() => void Object.assign(used, { ledger: 0, tally: 0, restored: 0 }));

const parameters = { type: 'object', properties: {} } as const;
const ledger = defineTool({
  name: 'ledger',
  description: '',
  parameters,
  create: () => ({ entries: [] as number[] }),
  execute(_, { state, sampleId }) {
    used.ledger++;
    state.entries.push(sampleId.length + 3 * state.entries.length);
    return `${state.entries.length} entries`;
  },
  save: ({ entries }) => entries,
  restore(saved) {
    used.restored++;
    return { entries: saved as number[] };
  },
});
/**
 * Creates an environment whose samples each start with a different observation. In the loop tool_agent, its steps answer turns without tool
 * calls.
 */
const environmentOf = (name: string) =>
  defineEnvironment({
    name,
    reset: (_, { sampleId }) => ({ state: { steps: 0 }, observation: sampleId.slice(-1) }),
    step: (text, { state }) => ({ text: `${text.length % 7}`, reward: ++state.steps, done: state.steps === 3 }),
  });
const kept = { ...environmentOf('kept'), save: (state: unknown) => state, restore: (saved: unknown) => saved };
const tally = defineTool({
  name: 'tally',
  description: '',
  parameters,
  create: () => ({ count: 0 }),
  execute: (_, { state }) => {
    used.tally++;
    return { text: `count ${++state.count}`, reward: 0.5 };
  },
});

/**
 * An untrained model starts a tool call only because of a logit bias. After a turn without a call, the loop itself calls the tools that
 * have a state.
 */
registerAgentLoop('nudged', async (sample) => {
  const index = Number(sample.input.problem.id);
  for (let turns = 1 + (index % 4); turns > 0; turns--) {
    const turn = await sample.generate({ logitBias: [[OPEN, 4]], maxNewTokens: 14 + 4 * (index % 3) });
    if (turn.stop) return turn.stop;
    const own = ['ledger', 'tally', 'tally'].map((name) => ({ name, args: {} }));
    const stop = turn.calls.length > 0 ? await sample.callTools(turn.calls) : await sample.callTools(own);
    sample.state = { turns: sample.numTurns };
    if (stop) return stop;
  }
  return 'completed';
});

const task: Task = {
  name: 'in-flight',
  train: (index) => ({
    id: `${index}`,
    messages: [{ role: 'user', content: `${index} plus 3` }],
    answer: '',
    agentName: index % 5 === 3 ? 'tool_agent' : 'nudged',
    environment: index % 2 === 1 ? 'kept' : 'again',
  }),
  heldOut: (count) =>
    Array.from({ length: count }, (_, i) => ({
      id: `h${i}`,
      messages: [{ role: 'user', content: `${i}` }],
      answer: '',
      environment: 'again',
    })),
  environments: [kept, environmentOf('again')],
  tools: [calculator, ledger, tally],
  reward({ toolStates = {}, toolRewards = {}, state, responseTokens }) {
    const { entries = [] } = (toolStates['ledger'] ?? {}) as { entries?: number[] };
    const { count = 0 } = (toolStates['tally'] ?? {}) as { count?: number };
    const { turns = 0 } = (state ?? {}) as { turns?: number };
    const steps = (toolRewards['kept'] ?? 0) + (toolRewards['again'] ?? 0);
    const sum = entries.reduce((a, b) => a + b, 0);
    return {
      score: (responseTokens % 5) + steps + sum + count + turns + (toolRewards['tally'] ?? 0),
      acc: responseTokens % 2,
    };
  },
};

const config = resolveTrainConfig({
  name: 'tiny',
  model: { path: 'x' },
  data: { trainBatchSize: 2, maxPromptLength: 20, maxResponseLength: 96, valMaxSamples: 4 },
  rollout: {
    n: 4,
    maxNumSeqs: 20,
    overSampleRate: 2,
    partialRollout: true,
    stop: ['w'],
    multiTurn: { enable: true, maxAssistantTurns: 8, maxToolCalls: 20, constrainToolCalls: true },
  },
  actor: { ppoMiniBatchSize: 2, ppoMaxTokenLenPerGpu: 240, optim: { lr: 1e-3 } },
  trainer: { totalTrainingSteps: 5, testFreq: 4, saveFreq: 1, valBeforeTrain: false },
});

interface Run {
  history: Metrics[];
  samples: Sample[][];
  /** Ids of samples in the order in which they were scored. */
  scored: string[];
  checkpoints: Checkpoint[];
}

/** Trains with a separate engine, and returns what happened. */
async function run(from?: Checkpoint, { config: own = config, engine = scriptedEngine() } = {}): Promise<Run> {
  const [samples, scored, checkpoints]: [Sample[][], string[], Checkpoint[]] = [[], [], []];
  const trainer = new GrpoTrainer({
    config: own,
    task,
    engine,
    onStep: (_, taken) => void samples.push(taken),
    onSample: ({ problem, trajectory }) => {
      if (trajectory.stopReason !== 'aborted') scored.push(problem.id);
    },
    onCheckpoint: (checkpoint) => void checkpoints.push(checkpoint),
  });
  if (from) await trainer.restore(from);
  const { history } = await trainer.fit();
  return { history, samples, scored, checkpoints };
}

const seen = (steps: Sample[][]) =>
  steps.map((step) =>
    step.map(({ problem, group, messages, reward, trajectory }) => ({ problem, group, messages, reward, trajectory })),
  );
const weightsOf = ({ weights }: Checkpoint) => [...weights].map(([name, { data }]) => [name, [...data]]);

interface Saved {
  samples: { received: object[]; turn?: { drawn: { tokenIds: string } }; toolStates?: object; scored?: object }[];
}
const inFlight = ({ state }: Checkpoint) =>
  ((state.parts?.['inFlight'] ?? []) as Saved[]).flatMap(({ samples }) => samples);

test('a run resumed from a checkpoint with samples in flight equals the undisturbed run', async () => {
  const whole = await run();
  expect(whole.checkpoints).toHaveLength(5);
  // Expects that the checkpoint contains what this test is about: started turns, answered tool calls with tool states, and, after an
  // evaluation, finished samples.
  const saved = inFlight(whole.checkpoints[2]);
  expect(saved.some(({ turn }) => turn !== undefined && turn.drawn.tokenIds.length > 0)).toBe(true);
  expect(saved.some(({ turn, received }) => turn !== undefined && received.length > 0)).toBe(true);
  for (const name of ['ledger', 'kept']) expect(saved.some(({ toolStates = {} }) => name in toolStates)).toBe(true);
  expect(inFlight(whole.checkpoints[3]).some(({ scored }) => scored !== undefined)).toBe(true);
  expect(whole.history.map((metrics) => metrics['training/carried_groups'])).toEqual(Array(5).fill(4));

  useSlowClock(); // the resumed runs must be equal on a slower machine
  for (const at of [0, 2, 3, 4]) {
    Object.assign(used, { ledger: 0, tally: 0, restored: 0 });
    const rest = await run(at > 0 ? readBack(whole.checkpoints[at - 1]) : undefined);
    if (at === 3) expect(used.restored).toBe(saved.filter(({ toolStates = {} }) => 'ledger' in toolStates).length);
    expect(withoutTimes(rest.history)).toEqual(withoutTimes(whole.history.slice(at)));
    expect(seen(rest.samples)).toEqual(seen(whole.samples.slice(at)));
    expect(weightsOf(rest.checkpoints.at(-1)!)).toEqual(weightsOf(whole.checkpoints[4]));
    expect(rest.checkpoints.at(-1)!.state).toEqual(whole.checkpoints[4].state);
    // Expects that no sample is reported twice.
    expect(whole.scored.slice(-rest.scored.length)).toEqual(rest.scored);
  }
});

/** Settings with fewer samples, for an engine that truncates the sampling distribution: each token has a `logMass`. */
const small = {
  ...config,
  rollout: { ...config.rollout, n: 2, overSampleRate: 1 },
  trainer: { ...config.trainer, totalTrainingSteps: 4, testFreq: 0 },
};
function cuttingEngine() {
  const engine = scriptedEngine();
  const { rollout } = engine;
  const cut = <T extends DrawnSoFar>(drawn: T): T => ({ ...drawn, logMass: drawn.logProbs.map((p) => p / 4) });
  const generate = rollout.generate.bind(rollout);
  const drawnSoFar = rollout.drawnSoFar.bind(rollout);
  rollout.generate = async (request: GenerateRequest) => cut(await generate(request));
  rollout.drawnSoFar = async (ids) => (await drawnSoFar(ids)).map((drawn) => drawn && cut(drawn));
  return engine;
}

test('a checkpoint that webgrpo 0.1.0 wrote, with samples in flight, resumes as the unbroken run', async () => {
  const whole = await run(undefined, { config: small, engine: cuttingEngine() });
  const { partialRollout: state } = JSON.parse(readFileSync('test/fixtures/tokens.json', 'utf8')) as {
    partialRollout: Checkpoint['state'];
  };
  const rest = await run({ ...whole.checkpoints[1], state }, { config: small, engine: cuttingEngine() });
  expect(withoutTimes(rest.history)).toEqual(withoutTimes(whole.history.slice(2)));
  expect(seen(rest.samples)).toEqual(seen(whole.samples.slice(2)));
  expect(weightsOf(rest.checkpoints.at(-1)!)).toEqual(weightsOf(whole.checkpoints[3]));
  expect(JSON.stringify(rest.checkpoints.at(-1)!.state)).toBe(JSON.stringify(whole.checkpoints[3].state));
});
