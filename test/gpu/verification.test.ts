/**
 * Tests samples of a worker that a controller checks on the same device: honest ones are accepted, and every kind of forgery is rejected.
 */
import * as Comlink from 'comlink';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { type ClaimedSample, FORGERIES, ForgingEngine } from '../../bench/forgeries.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { generateOptions } from '../../src/grpo/generate/options.ts';
import { generateSamples } from '../../src/grpo/generate/samples.ts';
import { SampleVerifier } from '../../src/extensions/rooms/verification/verifier.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import type { GenerateRequest, TurnEngine } from '../../src/rollout/types.ts';
import { gsm8kToolTask } from '../../src/tasks/gsm8k/task.ts';
import { keyedRng } from '../../src/tasks/random.ts';
import { engineSizes } from '../../src/workers/engineSpec.ts';
import { createEngineHost } from '../../src/workers/engineHost.ts';
import { createDeviceEngine, createLocalEngine } from '../../src/workers/localEngine.ts';
import { createRemoteEngine } from '../../src/workers/remoteEngine.ts';
import { readShipped } from './readFixture.ts';
import { workerAt } from '../stub.ts';

const task = gsm8kToolTask();
const folder = 'checkpoints/gsm8k-tool';
const config = resolveTrainConfig({
  name: 'verified',
  model: { path: folder },
  data: { maxPromptLength: 160, maxResponseLength: 96 },
  rollout: { n: 4, maxNumSeqs: 16, temperature: 1.1, multiTurn: { maxAssistantTurns: 4 } },
  trainer: { totalTrainingSteps: 1 },
});
const { n } = config.rollout;
const STEP = 7;
const shipped = await readShipped(folder);
const engine = await createLocalEngine({ ...engineSizes(config), ...shipped });
afterAll(() => engine.destroy());

/** Weights by version. There is only one model, so it loads them in turn. */
const weights: TensorMap[] = [];

const groups = (numbers = 2) =>
  Array.from({ length: numbers }, (_, number) => ({
    uid: `g${number}`,
    number,
    problem: task.train(number, config.seed),
    step: STEP,
  }));

const verifierOf = (more: object = {}) =>
  new SampleVerifier({
    config,
    task,
    tokenizer: engine.tokenizer,
    vocabSize: shipped.config.vocabSize,
    groupOf: (uid) => groups().find((group) => group.uid === uid),
    weightsOf: async (version) => {
      if (!weights[version]) return undefined;
      await engine.model.importWeights(weights[version]);
      return { drawBounds: (batch, options) => engine.model.drawBounds!(batch, options) };
    },
    ...more,
  });

async function samplesBy(rollout: TurnEngine, numbers = 2): Promise<ClaimedSample[]> {
  const options = generateOptions({ config, engine: { rollout, tokenizer: engine.tokenizer }, task }, STEP, n);
  const problems = groups(numbers).map(({ problem }) => problem);
  const { samples } = await generateSamples(problems, { ...options, globalStep: STEP });
  return samples.map((sample, i) => {
    const number = Math.floor(i / n);
    return { sample, claim: { uid: `g${number}`, number, step: STEP, s: i % n, version: 0 } };
  });
}

const verifyAll = (claimed: readonly ClaimedSample[], verifier = verifierOf()) =>
  Promise.all(claimed.map(({ sample, claim }) => verifier.verify(sample, claim)));

let honest: ClaimedSample[] = [];
beforeAll(async () => {
  weights[0] = await engine.model.exportWeights();
  const rng = keyedRng('other weights');
  weights[1] = new Map(
    [...weights[0]].map(([name, { shape, data }]) => [
      name,
      { shape, data: data.map((w) => w + (rng.uniform() - 0.5) * 0.1) },
    ]),
  );
  honest = await samplesBy(engine.rollout);
});

/** Generates with the given weights. Worker and controller share a device, so each of the two loads its own weights before it works. */
async function draw(by: TensorMap, version: number): Promise<void> {
  await engine.model.importWeights(by);
  await engine.rollout.resetCache(version);
}
beforeEach(() => draw(weights[0], 0));

test('honest samples with tools are accepted, and on one adapter each token matches exactly', async () => {
  const calls = honest.map(({ sample }) => sample.trajectory.numToolCalls);
  expect(Math.max(...calls)).toBeGreaterThan(1);
  const verdicts = await verifyAll(honest);
  verdicts.forEach((verdict, i) => {
    expect(verdict).toMatchObject({ accepted: true, nearTokens: 0 });
    if (!verdict.accepted) return;
    const { tokens, drawDistance, logProbDistance } = verdict.check;
    const { sample } = honest[i];
    expect([tokens, drawDistance, logProbDistance]).toEqual([
      sample.trajectory.mask.filter((m) => m === 1).length,
      0,
      0,
    ]);
    expect(verdict.sample).toEqual({ ...sample, events: [] });
  });
});

test.each(Object.entries(FORGERIES))('%s: rejected', async (kind, { forge, reasons }) => {
  const forged = honest.flatMap((sample, i) => {
    const group = honest.filter(({ claim }) => claim.uid === sample.claim.uid);
    return forge(sample, keyedRng(kind, i), group) ?? [];
  });
  expect(forged.length).toBeGreaterThan(3);
  for (const verdict of await verifyAll(forged)) {
    expect(verdict.accepted, JSON.stringify(verdict)).toBe(false);
    if (!verdict.accepted) expect(reasons).toContain(verdict.reason);
  }
});

test.each(['redrawn', 'neighbour'] as const)('one token %s, everything else honest: forged token', async (how) => {
  const forged = await samplesBy(new ForgingEngine(engine.rollout, how, shipped.config.vocabSize), 1);
  for (const verdict of await verifyAll(forged)) {
    expect(verdict).toMatchObject({ accepted: false, reason: 'forged token' });
    expect(verdict.check).toMatchObject({ wrongDraws: 1, wrongLogProbs: 0 });
  }
});

test('a sample is accepted once, also if it arrives twice at the same time', async () => {
  const verifier = verifierOf();
  const twice = await verifyAll([honest[0], honest[0]], verifier);
  expect(twice.map((verdict) => (verdict.accepted ? 'accepted' : verdict.reason))).toEqual([
    'accepted',
    'replayed sample',
  ]);
  const { sample, claim } = honest[0];
  expect(await verifier.verify(sample, claim)).toMatchObject({ accepted: false, reason: 'replayed sample' });
});

test('a forged sample does not stand in the way of the honest one', async () => {
  const verifier = verifierOf();
  const [{ sample, claim }] = honest;
  const forged = FORGERIES['one log-prob changed'].forge(honest[0], keyedRng(1), honest)!;
  expect(await verifier.verify(forged.sample, claim)).toMatchObject({ reason: 'forged log-probs' });
  expect(await verifier.verify(sample, claim)).toMatchObject({ accepted: true });
});

test('samples of other weights, and of an unknown version, are rejected', async () => {
  await draw(weights[1], 0); // the worker claims that they are version 0
  const forged = await samplesBy(engine.rollout, 2);
  // The tokens of a short sample can be right by chance. Then only its log-probs reveal the wrong weights.
  const reasons = (await verifyAll(forged)).map((verdict) => (verdict.accepted ? 'accepted' : verdict.reason));
  expect(['forged log-probs', 'forged token', 'wrong weights']).toEqual(expect.arrayContaining(reasons));
  expect(reasons).toContain('wrong weights');
  const claimed = forged.map(({ sample, claim }) => {
    const weightVersions = sample.trajectory.mask;
    return {
      claim,
      sample: { ...sample, trajectory: { ...sample.trajectory, weightVersions: Uint32Array.from(weightVersions) } },
    };
  });
  for (const verdict of await verifyAll(claimed)) expect(verdict).toMatchObject({ reason: 'forged version' });
  const ofPrompt = claimed.map(({ sample, claim }) => ({ sample, claim: { ...claim, version: 1 } }));
  for (const verdict of await verifyAll(ofPrompt)) expect(verdict).toMatchObject({ accepted: true, nearTokens: 0 });
  const [{ sample, claim }] = honest;
  const { weightVersions: _, ...trajectory } = sample.trajectory;
  const unknown = await verifierOf().verify({ ...sample, trajectory }, { ...claim, version: 9 });
  expect(unknown).toMatchObject({ accepted: false, reason: 'wrong weights', detail: 'version 9 is not available' });
});

/** Generates the first tokens of every first turn with one version of the weights, and the rest with the next version. */
function twoVersions(inner: TurnEngine, turns: number): TurnEngine {
  const begun = new Set<string>();
  let change = () => {};
  const changed = new Promise<void>((resolve) => (change = resolve));
  const generate = async (request: GenerateRequest) => {
    if (begun.has(request.requestId)) return inner.generate(request);
    begun.add(request.requestId);
    const sampling = { ...request.sampling, maxNewTokens: 3 };
    const { tokenIds, logProbs, weightVersions } = await inner.generate({ ...request, sampling });
    inner.release(request.requestId);
    if (begun.size === turns) {
      await draw(weights[1], 1);
      change();
    }
    await changed;
    return inner.generate({ ...request, drawn: { tokenIds, logProbs, ...(weightVersions && { weightVersions }) } });
  };
  return {
    generate,
    release: (id: string) => inner.release(id),
    abort: (ids: string[]) => inner.abort(ids),
  };
}

test('a sample of two versions is a forgery, also if it claims to be of one', async () => {
  const partial = await samplesBy(twoVersions(engine.rollout, 2 * n), 2);
  const versions = partial.map(({ sample }) => new Set(sample.trajectory.weightVersions));
  expect(versions.some((all) => all.has(0) && all.has(1))).toBe(true);
  for (const version of [0, 1]) {
    const mixed = partial.filter((_, i) => versions[i].size === 2);
    const claimed = mixed.map(({ sample, claim }) => ({ sample, claim: { ...claim, version } }));
    for (const verdict of await verifyAll(claimed)) expect(verdict).toMatchObject({ reason: 'forged version' });
  }
  const lying = partial.map(({ sample, claim }) => {
    const weightVersions = new Uint32Array(sample.trajectory.mask.length);
    return { claim, sample: { ...sample, trajectory: { ...sample.trajectory, weightVersions } } };
  });
  // Only long samples: one end token with probability 1 is the same with any weights.
  const long = lying.filter((_, i) => partial[i].sample.trajectory.weightVersions!.filter((v) => v === 1).length > 4);
  expect(long.length).toBeGreaterThan(3);
  for (const verdict of await verifyAll(long)) expect(verdict.accepted).toBe(false);
});

test('by a model in a worker', async () => {
  const { port1, port2 } = new MessageChannel();
  Comlink.expose(createEngineHost(createDeviceEngine), port2);
  const worker = workerAt(port1, () => port1.close());
  const { model, destroy } = await createRemoteEngine(worker, { ...engineSizes(config), ...shipped });
  const weightsOf = () => ({ drawBounds: model.drawBounds! });
  for (const verdict of await verifyAll(honest.slice(0, n), verifierOf({ weightsOf })))
    expect(verdict).toMatchObject({ accepted: true, nearTokens: 0 });
  const forged = FORGERIES['every log-prob 0.01 lower'].forge(honest[0], keyedRng(0), honest)!;
  expect(await verifierOf({ weightsOf }).verify(forged.sample, forged.claim)).toMatchObject({
    reason: 'forged log-probs',
  });
  await destroy();
  port2.close();
});
