/** Tests the training client on a tiny model behind a worker's interface, in Node and in the page. */
import * as Comlink from 'comlink';
import { expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { Learner, type MessageShape } from '../../src/extensions/learner/index.ts';
import { createEngineHost } from '../../src/workers/engineHost.ts';
import { createDeviceEngine } from '../../src/workers/localEngine.ts';
import { createRemoteEngine } from '../../src/workers/remoteEngine.ts';
import { workerAt } from '../stub.ts';
import { tinySpec } from './tinySpec.ts';

test('episodes through a worker are continued, forked, streamed, rewarded and trained', async () => {
  const config = resolveTrainConfig({
    name: 'tiny',
    model: { path: 'x' },
    data: { trainBatchSize: 1, maxPromptLength: 24, maxResponseLength: 64 },
    rollout: { n: 2, maxNumSeqs: 4 },
    actor: { ppoMiniBatchSize: 1, ppoMaxTokenLenPerGpu: 256, optim: { lr: 1e-2 } },
  });
  const { port1, port2 } = new MessageChannel();
  Comlink.expose(createEngineHost(createDeviceEngine), port1);
  port2.start();
  const worker = workerAt(port2);
  const engine = await createRemoteEngine(worker, tinySpec(config));
  const learner = new Learner({ config, engine });
  const before = await engine.model.exportWeights();
  const question: MessageShape = { role: 'user', content: '2 plus 3' };

  const episode = async (reward: number) => {
    const client = learner.client();
    let text = '';
    const stream = await client.chat.completions.create({ messages: [question], max_tokens: 8, stream: true });
    for await (const { choices } of stream) text += choices[0].delta.content ?? '';
    const reply: MessageShape = { role: 'assistant', content: text };
    const sure: MessageShape = { role: 'user', content: 'Sure?' };
    await client.chat.completions.create({ messages: [question, reply, sure], max_tokens: 8 });
    await client.chat.completions.create({ messages: [sure], max_tokens: 8 });
    client.trajectory.reward(reward);
  };
  await Promise.all([episode(1), episode(0)]);
  const { metrics, samples } = await learner.step();
  expect(samples).toHaveLength(4); // two episodes with one fork each
  expect(metrics).toMatchObject({
    'client/calls': 6,
    'client/continuations': 2,
    'client/forks': 2,
    'client/trajectories': 2,
    'critic/score/mean': 0.5,
    // Tokens that were sampled in several turns, with forks, get the same log-probs from the trainer. Each row has a separate prompt.
    'training/rollout_probs_diff_max': 0,
  });
  expect(Math.abs(metrics['actor/grad_norm'])).toBeGreaterThan(0);
  const after = await engine.model.exportWeights();
  expect([...after].some(([name, { data }]) => data.some((value, i) => value !== before.get(name)!.data[i]))).toBe(
    true,
  );
  // The next episode is generated with the new weights, and has free slots.
  const next = learner.client();
  await next.chat.completions.create({ messages: [question], max_tokens: 4 });
  expect([...next.trajectory.rows()[0].trajectory.weightVersions!]).toEqual(Array(4).fill(1));
  next.trajectory.abort();
  // A restored checkpoint repeats the clients' step with the same weights.
  const state = await learner.saveState();
  expect(state.state.parts?.['clients']).toMatchObject({ step: 1, updates: 1 });
  await Promise.all([episode(1), episode(0)]);
  const { metrics: first } = await learner.step();
  await learner.loadState(state);
  expect(await engine.model.exportWeights()).toEqual(after);
  await Promise.all([episode(1), episode(0)]);
  const { metrics: again } = await learner.step();
  expect(again['training/global_step']).toBe(first['training/global_step']);
  await learner.close();
  await engine.destroy();
  port1.close();
  port2.close();
});
