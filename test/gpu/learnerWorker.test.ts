/** Runs the example's loop over an engine in a worker: a real worker in a browser, its host behind a channel in Node. */
import { expect, test } from 'vitest';
import { config, grpo } from '../../examples/grpo-loop.ts';
import { Learner } from '../../src/extensions/learner/index.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import { createLocalEngine } from '../../src/workers/localEngine.ts';
import { createRemoteEngine } from '../../src/workers/remoteEngine.ts';
import { learnerSpec, workerOf } from './learnerEngine.ts';

const bits = (tensors: TensorMap) =>
  new Map([...tensors].map(([name, { data }]) => [name, new Uint32Array(data.slice().buffer)]));

test('a step through a worker is a step in this thread, and its state goes on there', async () => {
  const local = await createLocalEngine(learnerSpec());
  const want = await grpo(local, 1);
  const weights = bits(await local.model.exportWeights());
  const remote = await createRemoteEngine(workerOf(), learnerSpec());
  expect(await grpo(remote, 1)).toEqual(want);
  const state = await new Learner({ engine: remote, config }).saveState();
  expect(bits(state.weights)).toEqual(weights);
  const learner = new Learner({ engine: local, config });
  await learner.loadState(state);
  await expect(learner.optimStep()).rejects.toThrow('optimStep: there is no gradient');
  const custom = new Learner({ engine: remote, config });
  const rows = (await custom.sample(['a'], 2, { step: 1 })).flat();
  const loss = ({ logProbs }: { logProbs: Float32Array }) => ({ dLogProbs: logProbs.map(() => -1), loss: 3 });
  expect((await custom.forwardBackward(rows, loss)).loss).toBe(3);
  await remote.destroy();
  local.destroy();
});
