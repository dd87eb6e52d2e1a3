/** Tests rollout on the buffers that training writes, and on a copy of them that stays unchanged during training. */
import { afterEach, describe, expect, test, vi } from 'vitest';
import { offersHalves } from '../../src/gpu/adapter.ts';
import { initWeights } from '../../src/model/params.ts';
import type { EngineSpec } from '../../src/workers/engineSpec.ts';
import { createDeviceEngine, type DeviceEngine } from '../../src/workers/localEngine.ts';
import { planMemory } from '../../src/workers/memoryPlan.ts';
import { batch, bytesOf, drawn, generate, lora, offPolicy, request, specOf, train } from './besideTraining.ts';
import { isFull } from './full.ts';
import { hearing } from './hearing.ts';
import { expectPlanned } from './planned.ts';

const engines: DeviceEngine[] = [];
afterEach(() => engines.splice(0).forEach((engine) => engine.destroy()));
async function engineOf(more: Partial<EngineSpec>): Promise<DeviceEngine> {
  const engine = await createDeviceEngine(specOf(more));
  engines.push(engine);
  return engine;
}

/** Starts to record every bind group. The spy must exist before the device is in use, or it sees nothing. */
const spyOnBinds = () => vi.spyOn(GPUDevice.prototype, 'createBindGroup');

/** Returns the GPUBuffers that passes bind as weights while `work` runs. */
async function boundWeights(
  binds: ReturnType<typeof spyOnBinds>,
  work: () => Promise<unknown>,
): Promise<Set<GPUBuffer>> {
  const before = binds.mock.calls.length;
  await work();
  const entries = binds.mock.calls.slice(before).flatMap(([{ entries: all }]) => [...all]);
  const buffers = entries.map(({ resource }) => (resource as GPUBufferBinding).buffer);
  return new Set(buffers.filter(({ label }) => /^(weights|lora|rollout\.(weights|lora))(\.\d+)?$/.test(label)));
}

describe('shared', () => {
  test('rollout and training bind one and the same GPUBuffer, and an update moves 0 bytes to rollout', async () => {
    const binds = spyOnBinds();
    const engine = await engineOf({});
    const inTraining = await boundWeights(binds, () => train(engine.model, 1));
    const inRollout = await boundWeights(binds, () => generate(engine.rollout));
    expect(inTraining.size).toBe(1);
    expect(inRollout).toEqual(inTraining);
    expect([...inRollout][0]).toBe([...inTraining][0]);
    const { copiedBytes, mappedBytes } = engine.gpu.counters;
    await engine.rollout.resetCache(1);
    expect(engine.checkpointEngine).toBeUndefined();
    expect(engine.gpu.counters).toMatchObject({ copiedBytes, mappedBytes });
    expect(await offPolicy(engine.model, await generate(engine.rollout))).toBe(0);
  });
});

const FORMS: [string, Partial<EngineSpec>][] = [
  ['every weight', {}],
  ['every weight, float16', { dtype: 'float16' }],
  ['adapters over int8', { lora, weightFormat: 'int8' }],
  ['adapters', { lora }],
  ['adapters over float16', { lora, dtype: 'float16' }],
  ['a head of its own', { config: { ...specOf().config, tieWordEmbeddings: false, qkvBias: true } }],
];

/**
 * Forms of weights that are tested only in --full: only adapters are copied, whatever format they are over, and a model with a head of its own
 * copies every weight.
 */
const IN_FULL = ['every weight', 'adapters over int8', 'adapters over float16'];
const CHOSEN = FORMS.filter(([name]) => isFull || !IN_FULL.includes(name));

describe.each(CHOSEN)('a copy: %s', (_, form) => {
  const skipped = async () => form.dtype === 'float16' && !(await offersHalves());
  const made = (more: Partial<EngineSpec> = {}) => {
    const weights = form.config && { weights: initWeights(form.config, 5) };
    return engineOf({ ...form, ...weights, ...more });
  };

  test('generation during updates and the updates have the same results as alone', async ({ skip }) => {
    if (await skipped()) skip('this adapter has no shader-f16');
    const alone = await made();
    const want = drawn(await generate(alone.rollout));
    const trained = await train(alone.model, 2);
    const beside = await made({ rolloutWeights: 'copy' });
    let updating = true;
    const rounds: Promise<unknown[]> = (async () => {
      const all: unknown[] = [];
      do all.push(drawn(await generate(beside.rollout)));
      while (updating);
      return all;
    })();
    const seen = await train(beside.model, 2);
    updating = false;
    const generations = await rounds;
    expect(seen).toEqual(trained);
    for (const generation of generations) expect(generation).toEqual(want);
    expectPlanned({ ...specOf(form), rolloutWeights: 'copy' }, beside.gpu.counters);
  });

  test('only updateWeights copies the trained weights', async ({ skip }) => {
    if (await skipped()) skip('this adapter has no shader-f16');
    const binds = spyOnBinds();
    const engine = await made({ rolloutWeights: 'copy' });
    const [inRollout, inTraining] = [
      await boundWeights(binds, () => generate(engine.rollout)),
      await boundWeights(binds, () => train(engine.model, 1)),
    ];
    const own = (buffers: Set<GPUBuffer>) => [...buffers].filter(({ label }) => label.startsWith('rollout.'));
    expect(own(inRollout).length).toBeGreaterThan(0);
    expect(own(inTraining)).toEqual([]);
    await engine.rollout.resetCache(1);
    expect(await offPolicy(engine.model, await generate(engine.rollout))).toBeGreaterThan(1e-3);
    const before = engine.gpu.counters.copiedBytes;
    const transfer = await engine.checkpointEngine!.updateWeights(7);
    expect(transfer).toEqual({
      version: 7,
      bytes: engine.gpu.counters.copiedBytes - before,
      seconds: transfer.seconds,
      overlapSeconds: 0,
    });
    const generations = await generate(engine.rollout);
    expect(await offPolicy(engine.model, generations)).toBe(0);
    for (const { weightVersions } of generations) expect(new Set(weightVersions)).toEqual(new Set([7]));
    const whole = bytesOf(await engine.model.exportWeights());
    if (form.dtype && !form.lora) expect(transfer.bytes).toBeLessThan(0.6 * whole);
    else expect(transfer.bytes).toBe(whole);
    expect(
      planMemory({ ...specOf(form), rolloutWeights: 'copy' }).find(({ name }) => name === 'rollout weights')!.bytes,
    ).toBeGreaterThanOrEqual(transfer.bytes);
  });
});

test('a request in flight keeps its tokens and continues with the new weights from a token boundary', async () => {
  const engine = await engineOf({ rolloutWeights: 'copy' });
  const whole = request(0, 40);
  const old = await engine.rollout.generate(whole);
  await train(engine.model, 1);
  const { heard, onTokens } = hearing();
  const generating = engine.rollout.generate({ ...request(0, 40), onTokens });
  await heard(3);
  await engine.checkpointEngine!.updateWeights(1);
  const { tokenIds, logProbs, weightVersions } = await generating;
  const kept = weightVersions!.indexOf(1);
  expect(kept).toBeGreaterThan(2);
  expect(kept).toBeLessThan(40);
  expect([...weightVersions!]).toEqual(Array.from({ length: 40 }, (_, t) => (t < kept ? 0 : 1)));
  expect(tokenIds.slice(0, kept)).toEqual(old.tokenIds.slice(0, kept));
  expect(logProbs.slice(0, kept)).toEqual(old.logProbs.slice(0, kept));
  // Later tokens are sampled with the current weights, continuing after the earlier tokens.
  const contextIds = Uint32Array.from([...whole.contextIds, ...tokenIds.slice(0, kept)]);
  const rest = await engine.rollout.generate({ ...request(0, 40 - kept), contextIds });
  expect(rest.logProbs[0]).not.toBe(old.logProbs[kept]);
  const now = await engine.model.logProbs(batch, { temperature: 1 });
  expect(now.logProbs.every(Number.isFinite)).toBe(true);
});

test('a pause of the caller outlasts an update', async () => {
  const { rollout, checkpointEngine, gpu } = await engineOf({ rolloutWeights: 'copy' });
  await rollout.pause();
  let done = false;
  const generating = rollout.generate(request(1)).then(() => (done = true));
  await checkpointEngine!.updateWeights(1);
  const { dispatches } = gpu.counters;
  for (let round = 0; round < 3; round++) await gpu.idle();
  expect([done, gpu.counters.dispatches]).toEqual([false, dispatches]);
  await rollout.resume();
  await generating;
});

test('tfjs trains alone', async () => {
  await expect(engineOf({ engine: 'tfjs', rolloutWeights: 'copy' })).rejects.toThrow(
    'Engine "tfjs" cannot train beside rollout (rolloutWeights "copy"). Use engine "wgsl".',
  );
});
