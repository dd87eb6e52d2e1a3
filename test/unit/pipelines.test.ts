import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { ProblemQueue } from '../../src/grpo/generate/problems.ts';
import { CancelledError } from '../../src/grpo/generate/samples.ts';
import { AsyncGroups } from '../../src/extensions/pipelines/asyncGroups.ts';
import { givingWay } from '../../src/grpo/pipeline/givingWay.ts';
import { pipelineOf } from '../../src/grpo/pipeline/settings.ts';
import { LocalRollouter } from '../../src/extensions/pipelines/localRollouter.ts';
import type { RollouterFactory } from '../../src/grpo/pipeline/source.ts';
import type { CheckpointEngine } from '../../src/grpo/pipeline/types.ts';
import { versionsOf } from '../../src/extensions/pipelines/records.ts';
import { registerAgentLoop } from '../../src/rollout/agent/loop.ts';
import { uidOf } from '../../src/grpo/pipeline/record.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import type { ModelEngine, PackedBatch, TrainLoss } from '../../src/model/engine.ts';
import { mulberry32 } from '../../src/model/random.ts';
import type { GenerateRequest, RolloutEngine } from '../../src/rollout/types.ts';
import type { Task } from '../../src/tasks/task.ts';
import { copiedWeights, type Pace, PacedEngine } from '../pacedEngine.ts';
import { stub } from '../stub.ts';
import type { TrainConfigInput } from '../../src/grpo/config/input.ts';

const task: Task = {
  name: 'paced',
  train: (index) => ({ id: `${index}`, messages: [{ role: 'user', content: `${index} plus 3` }], answer: '' }),
  heldOut: () => [],
  reward: ({ messages }) => ({ score: messages[0].content.length, acc: 1 }),
};

interface Asked {
  groups?: number;
  n?: number;
  steps?: number;
  pipeline?: NonNullable<TrainConfigInput['trainer']>['pipeline'];
  asyncTraining?: TrainConfigInput['asyncTraining'];
  algorithm?: TrainConfigInput['algorithm'];
}

const isFull = process.env['FULL_TESTS'] === '1';

const configOf = ({ groups = 4, n = 2, steps = 6, pipeline = 'fully-async', asyncTraining, algorithm }: Asked = {}) =>
  resolveTrainConfig({
    name: 'paced',
    model: { path: 'none' },
    data: { trainBatchSize: groups, maxPromptLength: 16, maxResponseLength: 16 },
    rollout: { n },
    actor: { ppoMiniBatchSize: groups, ppoMaxTokenLenPerGpu: 64 },
    trainer: { pipeline, totalTrainingSteps: steps, testFreq: 0 },
    ...(asyncTraining && { asyncTraining }),
    ...(algorithm && { algorithm }),
  });

/** Returns the milliseconds that a sample takes: a random few, or those that `slow` returns for the problem. */
const paced = (seed: number, slow: (number: number) => number | Promise<void> | undefined = () => undefined): Pace => {
  const uniform = mulberry32(seed);
  return ({ requestId }: GenerateRequest) => slow(Number(requestId.split('.')[1])) ?? uniform() * 6;
};

interface Step {
  samples: Sample[];
  metrics: Metrics;
  synced: Metrics;
}

class Run {
  readonly source: AsyncGroups;
  readonly engine: PacedEngine;
  readonly problems: ProblemQueue;
  readonly config: TrainConfig;

  constructor(
    config: TrainConfig,
    ms: Pace,
    { shared = false, own = task, make }: { shared?: boolean; own?: Task; make?: RollouterFactory } = {},
  ) {
    this.config = config;
    this.engine = new PacedEngine(ms);
    const { tokenizer } = this.engine;
    this.problems = new ProblemQueue(own, config, tokenizer);
    const weights = shared ? {} : { checkpointEngine: copiedWeights(this.engine) };
    const engine = { rollout: this.engine, tokenizer, ...weights };
    this.source = new AsyncGroups({ config, engine, task: own, problems: this.problems, onSample: () => {} }, make);
  }

  async step(step: number, trainMs = 3): Promise<Step> {
    const { samples, metrics } = await this.source.generate(step);
    await this.source.pause();
    await new Promise((resolve) => setTimeout(resolve, trainMs));
    return { samples, metrics, synced: await this.source.resume(step) };
  }

  async steps(from = 1, to = this.config.trainer.totalTrainingSteps): Promise<Step[]> {
    const steps: Step[] = [];
    for (let step = from; step <= to; step++) steps.push(await this.step(step));
    return steps;
  }
}

const groupsOf = ({ samples }: Step) => [...new Set(samples.map(({ group }) => group))];
const allGroups = (steps: Step[]) => steps.flatMap(groupsOf).sort((a, b) => a - b);
const upTo = (count: number) => Array.from({ length: count }, (_, i) => i);
const oldestOf = ({ samples }: Step) => samples.map(({ trajectory }) => versionsOf(trajectory).oldest);
const contentOf = (steps: Step[]) =>
  steps.map(({ samples }) =>
    samples.map(({ group, trajectory: t }) => [group, [...t.responseIds], [...t.weightVersions!]]),
  );

describe('with any settings and any sample times', () => {
  const settings = fc.record({
    groups: fc.integer({ min: 1, max: 5 }),
    n: fc.integer({ min: 1, max: 3 }),
    steps: fc.integer({ min: 1, max: 6 }),
    stalenessThreshold: fc.constantFrom(0, 0.3, 0.5, 1, 1.7),
    triggerParameterSyncStep: fc.integer({ min: 1, max: 3 }),
    partialRollout: fc.boolean(),
    maxOffPolicyThreshold: fc.constantFrom(2, 3, 8),
    onStale: fc.constantFrom('drop', 'wait'),
    seed: fc.integer({ min: 1, max: 1000 }),
  });

  test('every group is trained on once or dropped, none is too old, and no more are started than allowed', () =>
    fc.assert(
      fc.asyncProperty(settings, async ({ groups, n, steps, seed, ...asyncTraining }) => {
        const config = configOf({ groups, n, steps, asyncTraining });
        const { maxGroups, maxAge, syncSteps, inOrder } = pipelineOf(config);
        const run = new Run(config, paced(seed));
        const all = await run.steps();
        const dropped = all.at(-1)!.metrics['fully_async/count/dropped_stale_samples'];
        const trained = allGroups(all);
        expect(trained).toHaveLength(groups * steps);
        expect(new Set(trained).size).toBe(groups * steps);
        expect(run.problems.position).toBe(groups * steps + dropped);
        expect(run.source.inFlightNumbers).toEqual([]);
        if (inOrder) expect([dropped, all.flatMap(groupsOf)]).toEqual([0, upTo(groups * steps)]);
        all.forEach((step, k) => {
          expect(step.samples).toHaveLength(groups * n);
          expect(step.metrics['fully_async/count/staleness_samples']).toBeLessThanOrEqual(maxGroups);
          const window = Math.floor(k / syncSteps); // syncs since the start
          for (const version of oldestOf(step)) expect(window - version / syncSteps).toBeLessThanOrEqual(maxAge);
        });
        expect(new Set(run.engine.released).size).toBe(run.engine.released.length);
      }),
      { numRuns: isFull ? 40 : 6 },
    ));

  test('a checkpoint with groups in flight loses and duplicates nothing', () =>
    fc.assert(
      fc.asyncProperty(settings, fc.integer({ min: 1, max: 5 }), async ({ groups, n, steps, seed, ...rest }, at) => {
        const config = configOf({ groups, n, steps: steps + 1, asyncTraining: rest });
        const cut = Math.min(at, steps);
        const before = new Run(config, paced(seed));
        const first = await before.steps(1, cut);
        const saved = JSON.stringify(await before.source.save());
        await before.source.close();
        const after = new Run(config, paced(seed + 1));
        after.source.restore(JSON.parse(saved), { inFlightNumbers: [], vocabSize: 512 });
        after.problems.moveTo(before.problems.position);
        const second = await after.steps(cut + 1);
        const dropped = second.at(-1)!.metrics['fully_async/count/dropped_stale_samples'];
        const queued = (JSON.parse(saved) as { queue: { records: { key: string }[] }[] }).queue.flatMap(({ records }) =>
          records.map(({ key }) => uidOf(key)),
        );
        for (const id of after.engine.released) expect(queued).not.toContain(id.slice(0, id.lastIndexOf('.')));
        const trained = allGroups([...first, ...second]);
        expect(new Set(trained).size).toBe(groups * (steps + 1));
        expect(trained).toHaveLength(groups * (steps + 1));
        expect(after.problems.position).toBe(groups * (steps + 1) + dropped);
      }),
      { numRuns: isFull ? 25 : 4 },
    ));

  test('hundreds of groups with a controller that restarts from its last checkpoint every few steps: each is trained on once', async () => {
    const groups = isFull ? 20 : 3;
    const config = configOf({ groups, n: 2, steps: 50, asyncTraining: { stalenessThreshold: 0.5 } });
    const uniform = mulberry32(9);
    let run = new Run(config, paced(1));
    const steps: Step[] = [];
    let lives = 1;
    while (steps.length < 50) {
      steps.push(await run.step(steps.length + 1, 0));
      if (uniform() > 0.2) continue;
      const saved = JSON.stringify(await run.source.save());
      const again = new Run(config, paced(++lives));
      again.source.restore(JSON.parse(saved), { inFlightNumbers: [], vocabSize: 512 });
      again.problems.moveTo(run.problems.position);
      void run.source.close(); // the result is ignored
      run = again;
    }
    const dropped = steps.at(-1)!.metrics['fully_async/count/dropped_stale_samples'];
    expect(lives).toBeGreaterThan(5);
    expect(new Set(allGroups(steps)).size).toBe(50 * groups);
    expect(allGroups(steps)).toHaveLength(50 * groups);
    expect(run.problems.position).toBe(50 * groups + dropped);
    expect(run.source.inFlightNumbers).toEqual([]);
    // The queue never has more than the groups of half a batch, each of a few hundred bytes.
    for (const { metrics } of steps)
      expect(metrics['fully_async/monitor/queue_groups']).toBeLessThanOrEqual(groups / 2);
  });

  test('a queue with space for one group delays the others, and the run still ends', async () => {
    for (const onStale of ['drop', 'wait'] as const) {
      const asyncTraining = { stalenessThreshold: 1, onStale, queueMib: 2500 / 2 ** 20 };
      const all = await new Run(configOf({ asyncTraining }), paced(3)).steps();
      expect(allGroups(all)).toHaveLength(24);
      for (const { metrics } of all) expect(metrics['fully_async/monitor/queue_mib']).toBeLessThan(2500 / 2 ** 20);
    }
  });
});

describe("verl's modes, by what is trained on", () => {
  const staleness = async (asked: Asked, ms = paced(7), tell = (_: PacedEngine): unknown => undefined) => {
    const run = new Run(configOf({ steps: 8, ...asked }), ms);
    tell(run.engine);
    const steps = await run.steps();
    return {
      run,
      steps,
      stale: steps.map(({ metrics }) => metrics['training/stale_tokens_share']),
      age: steps.map(({ metrics }) => metrics['training/off_policy/age/max']),
      partial: steps.map(({ metrics }) => metrics['fully_async/partial/total_partial_num']),
    };
  };

  test('a, on-policy: staleness threshold 0, a sync a step: nothing is stale', async () => {
    const { stale, partial } = await staleness({ asyncTraining: { stalenessThreshold: 0 } });
    expect([stale, partial]).toEqual([Array(8).fill(0), Array(8).fill(0)]);
  });

  test('b, stream off-policy: threshold 0, a sync every 4 steps: as old as the steps since', async () => {
    const { stale, age, partial, run } = await staleness({
      asyncTraining: { stalenessThreshold: 0, triggerParameterSyncStep: 4 },
    });
    expect(age).toEqual([0, 1, 2, 3, 0, 1, 2, 3]);
    expect(stale).toEqual([0, 1, 1, 1, 0, 1, 1, 1]);
    expect(partial).toEqual(Array(8).fill(0));
    expect(run.engine.changes.map(([version]) => version)).toEqual([0, 4, 8]);
  });

  test('c, async with stale samples: requests finish first, what was left over is one sync old', async () => {
    const { stale, age, partial, run } = await staleness({
      asyncTraining: { stalenessThreshold: 0.5, partialRollout: false },
    });
    expect(stale[0]).toBe(0);
    expect(age.slice(1)).toEqual(Array(7).fill(1));
    for (const share of stale.slice(1)) expect(share).toBeCloseTo(0.5); // 2 groups of 4 were left over
    expect(partial).toEqual(Array(8).fill(0));
    for (const [, underWay] of run.engine.changes) expect(underWay).toBe(0);
  });

  test('d, async with partial rollout: requests continue with new weights', async () => {
    const engines: PacedEngine[] = [];
    const untilSync = (number: number) => {
      const engine = engines[0];
      // The samples of every fourth group wait for the next sync, but not beyond the last sync (version 4).
      return number % 4 === 3 ? engine.reaches(Math.min(engine.version + 1, 4)) : undefined;
    };
    const { partial, run, steps } = await staleness(
      { asyncTraining: { stalenessThreshold: 1 } },
      paced(7, untilSync),
      (engine) => engines.push(engine),
    );
    expect(Math.max(...partial)).toBeGreaterThan(0);
    expect(run.engine.changes.some(([, underWay]) => underWay > 0)).toBe(true);
    expect(Math.max(...steps.map(({ metrics }) => metrics['fully_async/partial/max_partial_span']))).toBeGreaterThan(0);
  });

  test('one-step-off: batch k + 1 is of the weights of step k - 1', async () => {
    const { steps, run } = await staleness({ pipeline: 'one-step-off' });
    steps.forEach((step, k) => {
      expect(new Set(oldestOf(step))).toEqual(new Set([Math.max(0, k - 1)]));
      expect(groupsOf(step)).toEqual(upTo(4).map((i) => 4 * k + i));
    });
    for (const [, underWay] of run.engine.changes) expect(underWay).toBe(0);
  });
});

describe('what repeats exactly, however long samples take', () => {
  test.each<[string, Asked]>([
    ['one-step-off', { pipeline: 'one-step-off' }],
    [
      'fully-async, in order, requests finish',
      { asyncTraining: { stalenessThreshold: 0.5, partialRollout: false, onStale: 'wait' } },
    ],
    [
      'stream off-policy in order',
      { asyncTraining: { stalenessThreshold: 0, triggerParameterSyncStep: 2, onStale: 'wait' } },
    ],
  ])('%s', async (_, asked) => {
    const [first, second] = [new Run(configOf(asked), paced(1)), new Run(configOf(asked), paced(2))];
    expect(contentOf(await second.steps())).toEqual(contentOf(await first.steps()));
  });

  test('one-step-off resumes exactly from a checkpoint', async () => {
    const config = configOf({ pipeline: 'one-step-off' });
    const whole = contentOf(await new Run(config, paced(1)).steps());
    const before = new Run(config, paced(2));
    const first = await before.steps(1, 3);
    const saved = JSON.stringify(await before.source.save());
    const after = new Run(config, paced(3));
    after.source.restore(JSON.parse(saved), { inFlightNumbers: [], vocabSize: 512 });
    after.problems.moveTo(before.problems.position);
    expect(contentOf([...first, ...(await after.steps(4))])).toEqual(whole);
  });
});

describe('rules that leave groups out', () => {
  /** Runs 12 steps in which group 1 ends two weight syncs late. */
  const withLateGroup = (asyncTraining: Record<string, unknown>): Promise<Step[]> => {
    const run: Run = new Run(
      configOf({ steps: 12, asyncTraining }),
      paced(5, (number) => (number === 1 ? run.engine.reaches(2) : undefined)),
    );
    return run.steps();
  };

  test.each([[{}], [{ stalenessThreshold: 0.3 }], [{ maxOffPolicyThreshold: 2 }]])(
    'drop: a group that is two syncs late is trained on with %o',
    async (asyncTraining) => {
      const steps = await withLateGroup(asyncTraining);
      expect(steps.at(-1)!.metrics['fully_async/count/dropped_stale_samples']).toBe(0);
      expect(allGroups(steps)).toEqual(upTo(48));
    },
  );

  test('drop: a group above maxOffPolicyThreshold is counted and replaced', async () => {
    const steps = await withLateGroup({ stalenessThreshold: 1, maxOffPolicyThreshold: 1 });
    expect(steps.at(-1)!.metrics['fully_async/count/dropped_stale_samples']).toBeGreaterThan(0);
    expect(allGroups(steps)).not.toContain(1);
    expect(allGroups(steps)).toHaveLength(48);
    expect(Math.max(...steps.map(({ metrics }) => metrics['training/off_policy/age/max']))).toBe(1);
  });

  test('a rollouter that restarts stale groups: the late group is trained on by newer weights, and nothing replaces it', async () => {
    const make: RollouterFactory = (source, put) =>
      Object.assign(new LocalRollouter(source, put), { restartsStale: true });
    let isLate = true;
    const run: Run = new Run(
      configOf({ steps: 12, asyncTraining: { maxOffPolicyThreshold: 1 } }),
      paced(5, (number) =>
        number === 1 && isLate ? run.engine.reaches(2).then(() => void (isLate = false)) : undefined,
      ),
      { make },
    );
    const steps = await run.steps();
    expect(steps.at(-1)!.metrics['fully_async/count/dropped_stale_samples']).toBeGreaterThan(0);
    expect(allGroups(steps)).toEqual(upTo(48));
    expect(run.problems.position).toBe(48);
    expect(Math.max(...steps.map(({ metrics }) => metrics['training/off_policy/age/max']))).toBe(1);
  });

  test('the ratio of lengths compares the dropped groups of a step with those trained on', async () => {
    const run: Run = new Run(
      configOf({ steps: 12, asyncTraining: { maxOffPolicyThreshold: 1 } }),
      paced(5, (number) => (number === 1 ? run.engine.reaches(2) : undefined)),
    );
    const { engine } = run;
    const generate = engine.generate.bind(engine);
    engine.generate = async (request) => {
      const turn = await generate(request);
      if (request.requestId.split('.')[1] !== '1') return turn;
      const [id, end] = turn.tokenIds;
      const [first, last] = turn.weightVersions!;
      return {
        ...turn,
        tokenIds: Uint32Array.of(id, id, id, id, end),
        logProbs: new Float32Array(5).fill(-1),
        weightVersions: Uint32Array.of(first, first, first, first, last),
      };
    };
    const ratios = (await run.steps()).map(({ metrics }) => metrics['training/off_policy/dropped_length_ratio']);
    expect(ratios.filter((ratio) => ratio !== undefined)).toEqual([2.5]); // five tokens, the others have two
  });

  test('wait: the late group is awaited', async () => {
    const run = new Run(
      configOf({ steps: 4, asyncTraining: { stalenessThreshold: 1, onStale: 'wait' } }),
      paced(5, (number) => (number === 1 ? 200 : undefined)),
    );
    const steps = await run.steps();
    expect(groupsOf(steps[0])).toEqual([0, 1, 2, 3]);
    expect(steps[0].synced['trainer/idle_ratio']).toBeGreaterThan(0.5);
  });

  test('groups without a signal are replaced, up to maxNumGenBatches', async () => {
    const own: Task = {
      ...task,
      reward: ({ problem, messages }) => ({
        score: Number(problem.id) % 3 === 0 ? messages[0].content.length + Math.random() : 1,
        acc: 1,
      }),
    };
    const algorithm = { filterGroups: { enable: true, metric: 'score', maxNumGenBatches: 4 } } as const;
    const run = new Run(configOf({ steps: 3, algorithm, asyncTraining: { stalenessThreshold: 0.5 } }), paced(5), {
      own,
    });
    const steps = await run.steps();
    for (const step of steps) expect(groupsOf(step).every((number) => number % 3 === 0)).toBe(true);
    expect(allGroups(steps)).toHaveLength(12);
    expect(steps.reduce((sum, { metrics }) => sum + metrics['training/evicted_groups'], 0)).toBeGreaterThan(12);
  });
});

test('a failed group fails the step; the next attempt uses the same problems', async () => {
  let armed = true;
  const own: Task = {
    ...task,
    reward: ({ problem, ...rest }) => {
      if (armed && problem.id === '6') throw new Error('the fault');
      return task.reward({ problem, ...rest });
    },
  };
  const run = new Run(configOf({ pipeline: 'one-step-off', steps: 4 }), paced(5), { own });
  const failing = async () => {
    for (let step = 1; step <= 2; step++) await run.step(step);
  };
  await expect(failing()).rejects.toThrow('the fault');
  await run.source.close();
  expect(run.engine.underWay).toBe(0);
  run.problems.moveTo(0);
  run.source.restore(undefined, { inFlightNumbers: [], vocabSize: 512 });
  armed = false;
  expect(allGroups(await run.steps())).toEqual(upTo(16));
});

test('closing aborts the groups in flight, and a later step continues them', async () => {
  const run = new Run(
    configOf({ steps: 3, asyncTraining: { stalenessThreshold: 1 } }),
    paced(5, (number) => (number === 3 || number === 5 ? 60 : undefined)),
  );
  const first = await run.steps(1, 1);
  await run.source.close();
  expect(run.engine.underWay).toBe(0);
  expect(allGroups([...first, ...(await run.steps(2))])).toEqual(upTo(12));
});

test('a cancelled step does not affect the next checkpoint: no group is lost, and none is trained twice', async () => {
  let cancel!: (error: Error) => void;
  const cancelled = new Promise<never>((_, reject) => (cancel = reject));
  const make: RollouterFactory = (source, put) => {
    const local = new LocalRollouter(source, put);
    return {
      start: (groups) => local.start(groups),
      updateWeights: (version) => local.updateWeights(version),
      get failed() {
        return Promise.race([local.failed, cancelled]);
      },
      close: () => local.close(),
    };
  };
  let come!: () => void;
  const away = new Promise<void>((resolve) => (come = resolve));
  const config = configOf({ steps: 4, asyncTraining: { stalenessThreshold: 1 } });
  const pace = paced(5, (number) => (number >= 8 ? away : undefined));
  const run = new Run(config, pace, { make });
  const first = await run.steps(1, 2);
  const [{ position }, { inFlightNumbers }] = [run.problems, run.source];
  expect(inFlightNumbers.length).toBeGreaterThan(0);
  const third = run.step(3);
  cancel(new CancelledError('Nobody is here.'));
  await expect(third).rejects.toBeInstanceOf(CancelledError);
  come();
  // The trainer must close its source of groups after a failed step, and at its end.
  await run.source.close();
  run.problems.moveTo(position);
  run.source.restore(undefined, { inFlightNumbers, vocabSize: 512 });
  await run.source.close();
  const saved = JSON.stringify(await run.source.save()) as string | undefined;
  const after = new Run(config, paced(9));
  if (saved === undefined)
    after.source.restore(undefined, { inFlightNumbers: run.source.inFlightNumbers, vocabSize: 512 });
  else after.source.restore(JSON.parse(saved), { inFlightNumbers: [], vocabSize: 512 });
  after.problems.moveTo(position);
  expect(allGroups([...first, ...(await after.steps(3))])).toEqual(upTo(16));
});

test.each([true, false])(
  'a step whose weights nobody takes any more is whole, and the run goes on after it (partialRollout: %s)',
  async (partialRollout) => {
    let cancel!: (error: Error) => void;
    const cancelled = new Promise<never>((_, reject) => (cancel = reject));
    cancelled.catch(() => {});
    let isCancelled = false;
    const make: RollouterFactory = (source, put) => {
      const local = new LocalRollouter(source, put);
      return {
        start: (groups) => local.start(groups),
        updateWeights: (version) => (isCancelled ? cancelled : local.updateWeights(version)),
        get failed() {
          return Promise.race([local.failed, cancelled]);
        },
        close: () => local.close(),
      };
    };
    let come!: () => void;
    const away = new Promise<void>((resolve) => (come = resolve));
    const config = configOf({ steps: 4, asyncTraining: { stalenessThreshold: 1, partialRollout } });
    const run = new Run(
      config,
      paced(5, (number) => (number >= 8 ? away : undefined)),
      { make },
    );
    const first = await run.step(1);
    const { samples, metrics } = await run.source.generate(2);
    isCancelled = true;
    cancel(new CancelledError('The server is lost.'));
    const synced = await run.source.resume(2);
    expect(synced['perf/sync_bytes']).toBe(0);
    await run.source.evaluate(() => Promise.resolve()); // an evaluation after the step does not wait either
    come();
    await run.source.close();
    const { position } = run.problems;
    const after = new Run(config, paced(9));
    after.source.restore(JSON.parse(JSON.stringify(await run.source.save())), { inFlightNumbers: [], vocabSize: 512 });
    after.problems.moveTo(position);
    const more = await after.steps(3);
    expect(allGroups([first, { samples, metrics, synced }, ...more])).toEqual(upTo(16));
    expect(more.map((step) => step.metrics['fully_async/count/current_param_version'])).toEqual([2, 3]);
  },
);

test('an evaluation measures the newest weights, also after the run was stopped between two syncs', async () => {
  const config = configOf({ steps: 4, asyncTraining: { stalenessThreshold: 0, triggerParameterSyncStep: 3 } });
  const run = new Run(config, paced(5));
  const versions = () => run.engine.changes.map(([version]) => version);
  await run.steps(1, 2);
  await run.source.close();
  const measured = await run.source.evaluate(async () => versions());
  expect(measured).toEqual([0, 2]);
  expect(await run.source.evaluate(async () => versions())).toEqual([0, 2]);
  await run.steps(3);
  expect(versions()).toEqual([0, 2, 3, 4]);
});

test('a run that ends releases records that wait for space in the queue', async () => {
  const [puts, ends]: [Promise<unknown>[], unknown[]] = [[], []];
  const make: RollouterFactory = (source, put) => {
    const local = new LocalRollouter(source, (records) => {
      const more = new Uint32Array(1000); // one of them fits
      const done = put(records.map((record) => ({ ...record, columns: { ...record.columns, more } })));
      puts.push(done.catch((error: unknown) => ends.push(error)));
      return done;
    });
    return {
      start: (groups) => local.start(groups),
      updateWeights: (version) => local.updateWeights(version),
      failed: local.failed,
      async close() {
        await Promise.all(puts); // like a room, which acknowledges what it has put
        await local.close();
      },
    };
  };
  const asyncTraining = { stalenessThreshold: 2, queueMib: 0.006 };
  const run = new Run(configOf({ groups: 1, n: 1, asyncTraining }), paced(5), { make });
  await run.source.generate(1);
  await expect.poll(() => puts.length).toBe(3);
  await run.source.close();
  expect(ends).toEqual([new Error('The pipeline was closed.')]);
});

test('shared weights: no token is sampled while they change', async () => {
  const run = new Run(configOf({ asyncTraining: { stalenessThreshold: 1 } }), paced(5), { shared: true });
  await run.source.generate(1);
  await run.source.pause();
  await new Promise((resolve) => setTimeout(resolve, 30));
  const { underWay } = run.engine;
  expect(underWay).toBeGreaterThan(0);
  await run.source.resume(1);
  const versions = (await run.steps(2)).flatMap(({ samples }) =>
    samples.map(({ trajectory }) => versionsOf(trajectory)),
  );
  expect(versions.some(({ oldest, newest }) => oldest < newest)).toBe(true);
});

test('if rollout uses a copy on the same device, it runs before each micro-batch, as long as the previous one took', async () => {
  const seen: (string | number)[] = [];
  let now = 0;
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
  onTestFinished(() => clock.mockRestore());
  const model = stub<ModelEngine>({
    name: 'wgsl' as const,
    async forwardBackward() {
      seen.push('trains');
      now += 30;
      return { logProbs: new Float32Array(0), entropy: new Float32Array(0) };
    },
  });
  const rollout = stub<RolloutEngine>({ idle: async (maxMs: number) => void seen.push(maxMs) });
  const engineOf = (backend: CheckpointEngine['backend']) => ({
    ...{ model, rollout },
    checkpointEngine: { backend, updateWeights: () => Promise.reject(new Error('nothing is brought')) },
  });
  const gradient = givingWay(engineOf('copy'));
  for (let micro = 0; micro < 2; micro++)
    await gradient.forwardBackward(stub<PackedBatch>({}), stub<TrainLoss>({}), { temperature: 1 });
  expect(seen).toEqual([0, 'trains', 30, 'trains']);
  for (const backend of ['shared', 'stream'] as const) expect(givingWay(engineOf(backend))).toBe(model);
});

test('rollout must have its own weights if it uses older ones', () => {
  const asked: [Asked, boolean][] = [
    [{ pipeline: 'on-policy' }, false],
    [{ pipeline: 'one-step-off' }, true],
    [{ asyncTraining: { stalenessThreshold: 0 } }, false],
    [{ asyncTraining: { stalenessThreshold: 0.5 } }, false],
    [{ asyncTraining: { stalenessThreshold: 0.5, partialRollout: false } }, true],
    [{ asyncTraining: { stalenessThreshold: 0.5, triggerParameterSyncStep: 2 } }, true],
  ];
  for (const [given, needs] of asked) expect(pipelineOf(configOf(given)).needsCopy).toBe(needs);
  expect(() => new Run(configOf({ pipeline: 'one-step-off' }), paced(1), { shared: true })).toThrow(
    'trainer.pipeline "one-step-off" needs a separate copy of the weights for rollout',
  );
});

test('an external rollouter can deliver samples in any order, some twice, some of unknown groups', async () => {
  const uniform = mulberry32(3);
  const make: RollouterFactory = (source, put) => {
    const local = new LocalRollouter(source, async (records) => {
      const twice = [...records, ...records].sort(() => uniform() - 0.5);
      for (const record of twice) await put([record]);
      await put([{ ...records[0], key: 'nobody_0' }]);
    });
    return {
      start: (groups) => local.start(groups),
      updateWeights: (version) => local.updateWeights(version),
      get failed() {
        return local.failed;
      },
      close: () => local.close(),
    };
  };
  const run = new Run(configOf({ n: 3, asyncTraining: { stalenessThreshold: 0.5 } }), paced(5), { make });
  const first = await run.steps(1, 3);
  const saved = JSON.stringify(await run.source.save());
  await run.source.close();
  const after = new Run(run.config, paced(9), { make });
  after.source.restore(JSON.parse(saved), { inFlightNumbers: [], vocabSize: 512 });
  after.problems.moveTo(run.problems.position);
  const all = [...first, ...(await after.steps(4))];
  expect(new Set(allGroups(all)).size).toBe(24);
  for (const { samples } of all) expect(samples).toHaveLength(12);
  expect(first.at(-1)!.metrics['fully_async/count/total_generated_samples']).toBeLessThanOrEqual(18);
});

test('a sample that was trained on is not kept', async () => {
  const run = new Run(configOf({ steps: 8 }), paced(2));
  const taken: WeakRef<object>[] = [];
  for (let step = 1; step <= 8; step++)
    for (const { trajectory } of (await run.step(step)).samples) taken.push(new WeakRef(trajectory.responseIds));
  await new Promise((resolve) => setTimeout(resolve)); // a reference that was read stays until the task ends
  setFlagsFromString('--expose_gc');
  (runInNewContext('gc') as () => void)();
  expect(taken.length).toBe(64);
  expect(taken.filter((sample) => sample.deref()).length, 'samples in memory').toBeLessThanOrEqual(16);
  await run.source.close();
});

test('a sample without a token is of no version, so its group is not too old', async () => {
  registerAgentLoop('silent', () => Promise.resolve('completed'));
  const own: Task = {
    ...task,
    train: async (number) => ({ ...(await task.train(number, 1)), ...(number % 3 === 1 && { agentName: 'silent' }) }),
    reward: () => ({ score: 1, acc: 1 }),
  };
  for (const pipeline of ['one-step-off', 'fully-async'] as const) {
    const run = new Run(configOf({ pipeline, steps: 5 }), paced(6), { own });
    const steps = await run.steps();
    expect(steps.map(({ metrics }) => metrics['fully_async/count/dropped_stale_samples'])).toEqual([0, 0, 0, 0, 0]);
    expect(
      steps.flatMap(({ samples }) => samples).filter((sample) => sample.trajectory.responseIds.length === 0).length,
      pipeline,
    ).toBeGreaterThan(4);
    await run.source.close();
  }
});

test('a group that waits for an earlier one at a checkpoint is counted once', async () => {
  let free = () => {};
  const held = new Promise<void>((resolve) => (free = resolve));
  const asked = { steps: 4, asyncTraining: { stalenessThreshold: 1, onStale: 'wait' } } as const;
  const run = new Run(
    configOf(asked),
    paced(4, (number) => (number === 4 ? held : 0)),
  );
  const first = await run.steps(1, 1);
  await expect.poll(() => run.engine.underWay).toBe(2); // all but the held group are complete
  const saved = JSON.stringify(await run.source.save());
  free();
  await run.source.close();
  const after = new Run(run.config, paced(4));
  after.source.restore(JSON.parse(saved), { inFlightNumbers: [], vocabSize: 512 });
  after.problems.moveTo(run.problems.position);
  const all = [...first, ...(await after.steps(2))];
  expect(new Set(allGroups(all)).size).toBe(16);
  expect(all.at(-1)!.metrics['fully_async/count/total_generated_samples']).toBe(16);
});

describe('the config', () => {
  const given = (more: Partial<TrainConfigInput>) =>
    resolveTrainConfig({
      name: 'given',
      model: { path: 'none' },
      ...more,
      trainer: { pipeline: 'fully-async', ...more.trainer },
    });

  test('requireBatches determines the batch, and the resolved config can be read again', () => {
    const config = given({ actor: { ppoMiniBatchSize: 6 }, asyncTraining: { requireBatches: 3 } });
    expect(config.data.trainBatchSize).toBe(18);
    expect(resolveTrainConfig(config)).toEqual(config);
    expect(given({ data: { trainBatchSize: 6 }, actor: { ppoMiniBatchSize: 2 } }).data.trainBatchSize).toBe(6);
  });

  test.each<[string, Record<string, Record<string, unknown>>, string]>([
    ['over-sampling', { rollout: { overSampleRate: 0.5 } }, 'does not go together with rollout.overSampleRate'],
    ['replay', { algorithm: { replayBufferSize: 8 } }, 'does not go together with algorithm.replayBufferSize'],
    ['remax', { algorithm: { advEstimator: 'remax' } }, 'does not go together with algorithm.advEstimator "remax"'],
    [
      'an evaluation between two syncs',
      { asyncTraining: { triggerParameterSyncStep: 3 }, trainer: { testFreq: 20 } },
      'The nearest valid value is 21',
    ],
    [
      'two batch sizes',
      { data: { trainBatchSize: 12 }, actor: { ppoMiniBatchSize: 4 }, asyncTraining: { requireBatches: 2 } },
      'data.trainBatchSize is 12, but a step takes asyncTraining.requireBatches x actor.ppoMiniBatchSize = 2 x 4 = 8 groups',
    ],
  ])('refuses %s in one sentence', (_, more, message) => {
    expect(() => given(more)).toThrow(message);
  });
});
