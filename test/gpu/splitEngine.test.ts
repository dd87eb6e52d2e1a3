/** Tests training on one device and rollout on another, in this thread and in two workers. */
import { afterEach, describe, expect, test } from 'vitest';
import { DeviceLostError, GpuError } from '../../src/errors.ts';
import { offersHalves } from '../../src/gpu/adapter.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { Gpu } from '../../src/gpu/device.ts';
import { loadModel } from '../../src/model/weights/load.ts';
import { DeviceReceiver, DeviceSender, type WeightReceiver } from '../../src/model/weights/stream.ts';
import type { StreamOptions } from '../../src/workers/checkpointEngine.ts';
import { engineSizes, type EngineSpec } from '../../src/workers/engineSpec.ts';
import { createLocalEngine, type LocalEngine } from '../../src/workers/localEngine.ts';
import { planMemory, totalBytes } from '../../src/workers/memoryPlan.ts';
import { createRemoteEngine } from '../../src/workers/remoteEngine.ts';
import { splitEngine, splitSpecs, streamOptions } from '../../src/workers/splitEngine.ts';
import {
  AT,
  batch,
  bytesOf,
  config,
  drawn,
  generate,
  lora,
  offPolicy,
  request,
  specOf,
  train,
} from './besideTraining.ts';
import { isFull } from './full.ts';
import { hearing } from './hearing.ts';
import { expectPlanned } from './planned.ts';
import { workerOf } from './learnerEngine.ts';
import type { TrainerEngine } from '../../src/grpo/types.ts';
import { stub } from '../stub.ts';

const WHOLE: StreamOptions = { bucketBytes: 4 << 10, content: 'whole' };
const frees: (() => unknown)[] = [];
afterEach(async () => {
  for (const free of frees.splice(0)) await free();
});

async function pairOf(
  more: Partial<EngineSpec> = {},
): Promise<{ train: LocalEngine; other: LocalEngine; specs: ReturnType<typeof splitSpecs<EngineSpec>> }> {
  const specs = splitSpecs(specOf(more));
  const [train, other] = [await createLocalEngine(specs.train), await createLocalEngine(specs.rollout)];
  frees.push(
    () => train.destroy(),
    () => other.destroy(),
  );
  return { train, other, specs };
}

/** Returns the engine's receiver of weights, with `take` called for each bucket instead. */
function receiverOf(
  { receiver }: LocalEngine,
  take: (k: number, receive: () => Promise<void>) => Promise<void>,
): WeightReceiver {
  const own = receiver!;
  return {
    openReceive: (...args) => own.openReceive(...args),
    useWeights: (...args) => own.useWeights(...args),
    dropWeights: () => own.dropWeights(),
    receiveWeights: (k, data) => take(k, async () => own.receiveWeights(k, data)),
  };
}

/** Sends the trained weights to the engine's rollout. */
const sync = ({ checkpointEngine }: TrainerEngine, version: number) => checkpointEngine!.updateWeights(version);

const FORMS: [string, Partial<EngineSpec>][] = [
  ['every weight', {}],
  ['every weight, float16', { dtype: 'float16' }],
];
if (isFull) FORMS.push(['adapters', { lora }], ['adapters over int8', { lora, weightFormat: 'int8' }]);

describe.each(FORMS)('two devices: %s', (_, form) => {
  test('weights trained on one device are used on the other after a sync, with the results of one device', async ({
    skip,
  }) => {
    if (form.dtype && !(await offersHalves())) skip('this adapter has no shader-f16');
    const one = await createLocalEngine(specOf({ ...form, rolloutWeights: 'copy' }));
    frees.push(() => one.destroy());
    const { train: trainer, other, specs } = await pairOf(form);
    const engine = splitEngine(trainer, other, WHOLE);
    expect(engine.checkpointEngine?.backend).toBe('stream');
    for (const version of [1, 2]) {
      const [seen, trained, generations] = await Promise.all([
        train(engine.model, 1),
        train(one.model, 1),
        generate(engine.rollout), // with the weights before
      ]);
      expect(seen).toEqual(trained);
      expect(drawn(generations)).toEqual(drawn(await generate(one.rollout)));
      const transfer = await sync(engine, version);
      const { bytes } = await sync(one, version);
      expect(transfer).toMatchObject({ version, bytes });
      if (!form.dtype) expect(bytes).toBe(bytesOf(await engine.model.exportWeights()));
    }
    const generations = await generate(engine.rollout);
    expect(await offPolicy(engine.model, generations)).toBe(0);
    for (const { weightVersions } of generations) expect(new Set(weightVersions)).toEqual(new Set([2]));
    await trainer.model.logProbs(batch, AT);
    expectPlanned(specs.train, trainer.gpu.counters);
    expectPlanned(specs.rollout, other.gpu.counters);
  });
});

/** This test compiles every kernel twice, so the everyday tests run it only in Chromium. */
const hasTime = isFull || 'document' in globalThis;
test.runIf(hasTime)('devices of their own: what is trained on one is drawn by on the other', async () => {
  const { train: trainer, other } = await pairOf();
  const engine = splitEngine(trainer, other, WHOLE);
  const { model, rollout } = engine;
  await Promise.all([train(model, 1), generate(rollout)]);
  expect(await offPolicy(model, await generate(rollout))).toBeGreaterThan(1e-3);
  await sync(engine, 1);
  expect(await offPolicy(model, await generate(rollout))).toBe(0);
  const view = (gpu: Gpu) => gpu.buffer('probe', 4);
  const [own, foreign] = [view(trainer.gpu), view(other.gpu)];
  trainer.gpu.copy(own, foreign);
  await expect(trainer.gpu.read(own)).rejects.toThrow(GpuError); // a buffer of one cannot be used on the other
});

test('rollout uses the old weights while buckets arrive, and the new ones from a token boundary', async () => {
  const { train: trainer, other } = await pairOf();
  const slow = receiverOf(other, async (k, receive) => {
    await receive();
    if (k % 8 === 0) during.push(drawn(await generate(other.rollout)));
  });
  const during: unknown[] = [];
  const before = drawn(await generate(other.rollout));
  await train(trainer.model, 1);
  const engine = splitEngine(trainer, { ...other, receiver: slow }, WHOLE);
  const { heard, onTokens } = hearing();
  const { rollout } = engine;
  const under = rollout.generate({ ...request(0, 40), onTokens });
  await heard(2);
  await sync(engine, 3);
  const { tokenIds } = await under;
  expect(tokenIds.length).toBe(40);
  expect(during.length).toBeGreaterThan(2);
  for (const generations of during) expect(generations).toEqual(before);
  expect(drawn(await generate(rollout))).not.toEqual(before);
});

test('delta: unchanged buckets are not sent again', async () => {
  const { train: trainer, other } = await pairOf();
  const engine = splitEngine(trainer, other, { bucketBytes: 1 << 10, content: 'delta' });
  const { model } = engine;
  await train(model, 1);
  const whole = bytesOf(await model.exportWeights());
  const bytes = async (version: number) => (await sync(engine, version)).bytes;
  expect(await bytes(1)).toBe(whole);
  expect(await bytes(2)).toBe(0);
  const norm = 'model.norm.weight';
  const weights = await model.exportWeights();
  const changed = { ...weights.get(norm)!, data: weights.get(norm)!.data.map((x) => -x) };
  await model.importWeights(new Map(weights).set(norm, changed));
  expect(await bytes(3)).toBeLessThanOrEqual(2 << 10);
  expect(await offPolicy(model, await generate(engine.rollout))).toBe(0);
  await model.importWeights(weights);
  expect(await bytes(4)).toBeGreaterThan(0);
  expect(await offPolicy(model, await generate(engine.rollout))).toBe(0);
});

test('a failed transfer leaves the old weights intact, and the next one sends everything', async () => {
  const { train: trainer, other } = await pairOf();
  let fails = false;
  const receiver = receiverOf(other, async (k, receive) => {
    if (fails && k === 5) throw new Error('the net is gone');
    await receive();
  });
  const engine = splitEngine(trainer, { ...other, receiver }, { bucketBytes: 4 << 10, content: 'delta' });
  const { rollout, model } = engine;
  await sync(engine, 1);
  const before = drawn(await generate(rollout));
  const { bytes: held } = other.gpu.counters;
  await train(model, 1);
  fails = true;
  await expect(sync(engine, 2)).rejects.toThrow('the net is gone');
  expect(other.gpu.counters.bytes).toBe(held);
  const generations = await generate(rollout);
  expect(drawn(generations)).toEqual(before);
  expect(new Set(generations[0].weightVersions)).toEqual(new Set([1]));
  fails = false;
  const { bytes } = await sync(engine, 2);
  expect(bytes).toBe(bytesOf(await model.exportWeights()));
  expect(await offPolicy(model, await generate(rollout))).toBe(0);
});

test('buckets that are too few, or of another size, and weights of another model are refused', async () => {
  const gpu = await Gpu.create();
  frees.push(() => gpu.destroy());
  const { weights } = specOf();
  const model = await loadModel(gpu, config, 64, weights);
  const receiver = new DeviceReceiver(gpu, model, async (change) => change());
  const sender = new DeviceSender(gpu, model);
  const tensors = await sender.openSend({ bucketBytes: 1 << 12, content: 'whole', afresh: true });
  await receiver.openReceive(tensors, 1 << 12);
  const bucket = (await sender.sendWeights(0))!;
  await expect(receiver.receiveWeights(0, bucket.slice(4))).rejects.toThrow('has 4092 bytes instead of 4096');
  await expect(receiver.receiveWeights(9999, bucket)).rejects.toThrow(
    'Bucket 9999 of the weights has 4096 bytes instead of 0.',
  );
  await receiver.receiveWeights(0, bucket);
  await expect(receiver.useWeights(1, 3)).rejects.toThrow(
    '1 of 3 buckets of weights have arrived; version 1 is not used.',
  );
  const shorter = tensors.slice(0, -1);
  await expect(receiver.openReceive(shorter, 1 << 12)).rejects.toThrow(
    /have nothing more where the rollout device has finalNorm/,
  );
  const [first, ...rest] = tensors;
  await expect(receiver.openReceive([{ ...first, shape: [7] }, ...rest], 1 << 12)).rejects.toThrow(
    /^The weights that are sent have embed \(7 values\) where the rollout device has embed \(\d+ values\)\. Give both devices/,
  );
  expect(() => splitEngine(stub<LocalEngine>({}), stub<LocalEngine>({}), WHOLE)).toThrow(
    'splitEngine takes two engines',
  );
});

test('the limit of memory is for both devices together', async () => {
  const { train, specs } = await pairOf();
  const { adapter: adapterSummary, maxArenaBytes } = train.gpu;
  const sum = totalBytes(planMemory({ ...specs.train, adapterSummary, maxArenaBytes }));
  const within = (bytes: number) =>
    Promise.all(
      Object.values(splitSpecs(specOf({ maxMemoryMib: bytes / 2 ** 20 }))).map(async (spec) => {
        const engine = await createLocalEngine(spec);
        frees.push(() => engine.destroy());
        return engine.gpu;
      }),
    );
  const [one, other] = await within(sum);
  expect(one.maxBytes + other.maxBytes).toBe(sum);
  await expect(within(sum - 4)).rejects.toThrow(/^This run needs .*other engines of the run [\d.]+ MiB/);
});

test('trainer.pipeline and trainer.placement select the weights that rollout uses', () => {
  const configOf = (trainer: object, checkpointEngine: object = {}) =>
    resolveTrainConfig({ name: 'a', model: { path: 'x' }, trainer, rollout: { checkpointEngine } });
  const weightsOf = (trainer: object) => engineSizes(configOf(trainer)).rolloutWeights;
  expect(weightsOf({})).toBeUndefined();
  expect(weightsOf({ pipeline: 'one-step-off' })).toBe('copy');
  expect(weightsOf({ pipeline: 'fully-async' })).toBe('copy');
  expect(weightsOf({ pipeline: 'fully-async', placement: 'split' })).toBeUndefined();
  const judge = { judge: specOf().rollout!, withReference: true, optimizer: { name: 'SignSGD' as const } };
  const specs = splitSpecs({ ...specOf(), ...judge });
  const { maxTokenLen, maxPositions, rollout } = specOf();
  const common = { maxTokenLen, maxPositions, rollout, rolloutWeights: 'stream' };
  const [trains, generates] = [
    { ...common, ...judge },
    { ...common, use: 'generate' },
  ];
  expect(specs.train).toEqual({ ...specOf(), ...judge, rolloutWeights: 'stream', otherEngines: [generates] });
  expect(specs.rollout).toEqual({ ...specOf(), use: 'generate', rolloutWeights: 'stream', otherEngines: [trains] });
  expect(streamOptions(configOf({}))).toEqual({ bucketBytes: 16 << 20, content: 'whole' });
  const small = { updateWeightsBucketMegabytes: 0.1, content: 'delta' };
  expect(streamOptions(configOf({}, small))).toEqual({ bucketBytes: 104_856, content: 'delta' });
});

test('two workers, and a copy in one worker, give the results of engines in this thread', async () => {
  const { train: trainer, other } = await pairOf();
  const local = splitEngine(trainer, other, WHOLE);
  const specs = splitSpecs(specOf());
  const halves = [
    await createRemoteEngine(workerOf(), specs.train),
    await createRemoteEngine(workerOf(), specs.rollout),
  ];
  const remote = splitEngine(halves[0], halves[1], WHOLE);
  const copy = await createRemoteEngine(workerOf(), specOf({ rolloutWeights: 'copy' }));
  const seen = await train(local.model, 1);
  expect(await train(remote.model, 1)).toEqual(seen);
  expect(await train(copy.model, 1)).toEqual(seen);
  const before = drawn(await generate(local.rollout));
  for (const engine of [remote, copy]) expect(drawn(await generate(engine.rollout))).toEqual(before);
  const { bytes } = await sync(local, 4);
  for (const engine of [remote, copy]) expect(await sync(engine, 4)).toMatchObject({ version: 4, bytes });
  const after = await generate(local.rollout);
  expect(drawn(after)).not.toEqual(before);
  for (const engine of [remote, copy]) expect(await generate(engine.rollout)).toEqual(after);
  await copy.destroy();
  const lost = (own: typeof remote, other: typeof remote) => splitEngine(own, other, WHOLE).untilLost();
  const gone = { untilLost: () => Promise.reject(new DeviceLostError('unknown', 'unplugged')) };
  await expect(lost({ ...halves[0], ...gone }, halves[1])).rejects.toThrow('unplugged');
  await expect(lost(halves[0], { ...halves[1], ...gone })).rejects.toThrow('unplugged');
  await remote.destroy();
});
