/**
 * Tests `webgrpo serve` over a scripted engine: an agent written with the official openai package trains by changing only its base URL.
 * Also tests the command whose device is lost.
 */
import { mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI from 'openai';
import { expect, test } from 'vitest';
import { listen } from '../../src/cli/serve/listen.ts';
import { routes } from '../../src/cli/serve/routes.ts';
import { ClientTrainer } from '../../src/extensions/client/index.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { DeviceLostError } from '../../src/errors.ts';
import { metricsIn, RunningCommand, scriptedEngines } from '../commandLine.ts';
import { type Gate, type Moment, TestGate } from '../scripted/gate.ts';
import { scriptedEngine } from '../scriptedRuns.ts';
import { containing } from '../stub.ts';

const QUESTION = { role: 'user' as const, content: '2 plus 3' };

/** An agent without any knowledge of being trained. */
async function agent(client: OpenAI, question = QUESTION): Promise<{ id: string; text: string }> {
  const messages: OpenAI.ChatCompletionMessageParam[] = [question];
  const { choices } = await client.chat.completions.create({ model: 'tiny', messages, max_tokens: 6 });
  messages.push(choices[0].message, { role: 'user', content: 'Sure?' });
  const stream = await client.chat.completions.create({ model: 'tiny', messages, max_tokens: 6, stream: true });
  let [id, text] = ['', ''];
  for await (const chunk of stream) {
    id = chunk.id;
    text += chunk.choices[0]?.delta.content ?? '';
  }
  return { id, text };
}

test('an agent of the openai package, with names in its base URL and without', async () => {
  const config = resolveTrainConfig({
    name: 'tiny',
    model: { path: 'x' },
    data: { trainBatchSize: 2, maxPromptLength: 16, maxResponseLength: 48 },
    rollout: { n: 2, maxNumSeqs: 4 },
    actor: { ppoMiniBatchSize: 2, ppoMaxTokenLenPerGpu: 256, optim: { lr: 1e-2 } },
    reward: { overlongBuffer: { len: 48 } },
  });
  const engine = scriptedEngine();
  const trainer = new ClientTrainer({ config, engine });
  const { groups } = trainer;
  const step = async (count: number) => (await trainer.step({ groups: count })).metrics;
  const server = await listen(routes({ groups, metrics: () => undefined, trainBatchSize: 2, step }), {
    host: '127.0.0.1',
    port: 0,
  });
  const clientAt = (path: string) => new OpenAI({ apiKey: 'none', baseURL: `${server.url}/v1${path}`, maxRetries: 0 });
  const before = await engine.model.exportWeights();

  const named = ['a', 'b'].map((name) => clientAt(`/t/first/${name}`));
  const plain = clientAt('');
  const other = { ...QUESTION, content: '7 minus 4' };
  const ends = await Promise.all([...named.map((client) => agent(client)), agent(plain, other), agent(plain, other)]);
  await Promise.all(named.map((client, i) => client.post('/rewards', { body: { reward: i } })));
  for (const [i, { id }] of ends.slice(2).entries()) await plain.post('/rewards', { body: { id, reward: i } });
  const { metrics } = await plain.post<{ metrics: Metrics }>('/step', { body: { groups: 'all' } });

  expect(metrics['critic/rewards/mean']).toBeLessThan(0.5); // the penalty on overlong responses is part of it
  expect(metrics).toMatchObject({
    'training/global_step': 1,
    'client/trajectories': 4,
    'client/calls': 8,
    'client/continuations': 4,
    'client/forks': 0,
    'critic/score/mean': 0.5,
    'training/rollout_probs_diff_max': 0,
  });
  const after = await engine.model.exportWeights();
  expect([...after].some(([name, { data }]) => data.some((value, i) => value !== before.get(name)!.data[i]))).toBe(
    true,
  );
  const answer = await plain.chat.completions.create({
    model: 'tiny',
    messages: [QUESTION],
    max_tokens: 4,
    logprobs: true,
  });
  expect(answer.system_fingerprint).toBe('step-1');
  expect(answer.choices[0].logprobs?.content).toHaveLength(answer.usage!.completion_tokens);
  await trainer.close();
  await server.close();
});

const defaultLocalDir = mkdtempSync(join(tmpdir(), 'webgrpo-serve-'));
const SMALL = [
  ...['data.trainBatchSize=1', 'actor.ppoMiniBatchSize=1', 'rollout.n=2', 'data.maxResponseLength=48'],
  ...['trainer.kernelTuning=off', 'trainer.resumeMode=auto'],
  `trainer.defaultLocalDir=${defaultLocalDir}`,
];

/** Runs the `serve` command until its run has ended. */
async function running(
  name: string,
  steps: number,
  agents: (url: string, run: RunningCommand) => Promise<void>,
  { gate, saveFreq = 1, flags = [] }: { gate?: Gate; saveFreq?: number; flags?: string[] } = {},
) {
  const lengths = [`trainer.totalTrainingSteps=${steps}`, `trainer.saveFreq=${saveFreq}`];
  const settings = [...SMALL, `name=${name}`, ...lengths];
  const run = new RunningCommand(['serve', 'configs/gsm8k-tool.yaml', ...settings, '--port', '0', ...flags], {
    createEngine: scriptedEngines(gate),
  });
  const [, url] = await run.said(/serving .* at (\S+)\/v1 /);
  await agents(url, run);
  expect((await run.done).status).toBe(0);
  return run.stderr;
}

const asked = async (url: string, path: string, body?: object) => {
  const init = body && {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  };
  // If the event loop was blocked for long, a kept-alive connection can be closed while a request is sent. The request is then repeated.
  const ask = () => fetch(`${url}/v1${path}`, init);
  const response = await ask().catch(ask);
  return { status: response.status, wait: response.headers.get('retry-after'), json: await response.json() };
};

interface Reply {
  metrics: Metrics | null;
  choices: { message: { role: string; content: string } }[];
  error: { message: string; code: string };
}

/** Returns metrics of the steps, without times and without counts of repeated calls, and the bytes of the last checkpoint. */
function outcome(name: string) {
  const path = join(defaultLocalDir, name);
  const isExact = ([metric]: [string, number]) => !/^(timing|perf|client\/(failed|continuations))/.test(metric);
  const metrics = metricsIn(path).map((line) => Object.entries(line).filter(isExact));
  const bytes = ['model.safetensors', 'optimizer.safetensors'].map((file) =>
    readFileSync(join(path, 'checkpoints', 'step-4', file)).toString('base64'),
  );
  return { metrics, bytes, checkpoints: readdirSync(join(path, 'checkpoints')).sort() };
}

test('webgrpo serve continues on a new device after a loss, and later with the episodes of its checkpoint', async () => {
  let losesAt: Moment | undefined;
  const gate: Gate = {
    at(moment) {
      if (moment !== losesAt) return undefined;
      losesAt = undefined;
      return Promise.reject(new DeviceLostError('unknown', 'The test took it.'));
    },
  };
  const refusals: Reply['error'][] = [];
  /** Makes a call, and repeats it if it is refused. */
  const call = async (url: string, path: string, messages: object[]): Promise<Reply['choices'][0]['message']> => {
    for (;;) {
      const { status, wait, json } = await asked(url, `${path}/chat/completions`, { messages, max_tokens: 8 });
      const { choices, error } = json as Reply;
      if (status === 200) return choices[0].message;
      expect([status, wait]).toEqual([503, '1']);
      refusals.push(error);
    }
  };
  /** Makes four steps of two episodes with two calls each. */
  const agents = (losses: boolean) => async (url: string, run: RunningCommand) => {
    for (let step = 1; step <= 4; step++) {
      const first = { role: 'user', content: `${step} plus 3` };
      for (const member of [0, 1]) {
        const path = `/t/g${step}/${member}`;
        const reply = await call(url, path, [first]);
        if (losses && step === 4 && member === 1) losesAt = 'turn';
        await call(url, path, [first, reply, { role: 'user', content: 'Sure?' }]);
        if (step === 4 && member === 1) await call(url, '/t/later/a', [first]);
        // The device is lost during the update of step 3.
        if (losses && step === 3 && member === 1) losesAt = 'update';
        expect((await asked(url, `${path}/rewards`, { reward: member })).status).toBe(200);
      }
      if (step < 4) await run.said(new RegExp(`^step ${step}/4`, 'm'));
      const { json } = await asked(url, '/metrics');
      if (step > 1) expect((json as Reply).metrics?.['training/global_step']).toBeGreaterThanOrEqual(step - 1);
    }
  };
  await running('unbroken', 4, agents(false));
  const said = await running('lost', 4, agents(true), { gate });
  const [got, want] = [outcome('lost'), outcome('unbroken')];
  expect(got.metrics).toEqual(want.metrics);
  expect(got.checkpoints).toEqual(want.checkpoints);
  expect(got.bytes).toEqual(want.bytes);
  const isLost = { code: 'device_lost', message: containing('was lost during this call') };
  expect(refusals.splice(0)).toMatchObject([isLost]);
  const lost = /the GPU device was lost after step (\d) .*, resuming on a new one from \S+step-(\d)\n/g;
  expect([...said.matchAll(lost)].map(([, ...steps]) => steps.join())).toEqual(['2,2', '3,3']);

  // The same run with more steps, and the open episode is restored. The device is lost after step 5, before its checkpoint, so new episodes
  // repeat steps 5 and 6.
  const reward = async (url: string, path: string, score = 0) =>
    (await asked(url, `${path}/rewards`, { reward: score })).status;
  const more = async (url: string, run: RunningCommand) => {
    const first = { role: 'user', content: '4 plus 3' };
    const unknown = await reward(url, '/t/later/b');
    await call(url, '/t/later/a', [first]);
    expect([unknown, await reward(url, '/t/later/a', 1)]).toEqual([404, 200]);
    await call(url, '/t/later/b', [first]);
    expect(await reward(url, '/t/later/b')).toBe(200);
    await run.said(/^step 5\/6/m);
    const { json } = await asked(url, '/metrics');
    expect((json as Reply).metrics).toMatchObject({ 'client/trajectories': 2, 'client/forks': 1 });
    losesAt = 'turn';
    for (const path of ['/t/third/a', '/t/third/b', '/t/fourth/a', '/t/fourth/b']) {
      await call(url, path, [first]);
      expect(await reward(url, '/t/later/b')).toBe(404); // a step has trained on it, and it is not restored
      expect(await reward(url, path)).toBe(200);
    }
  };
  const later = await running('lost', 6, more, { gate, saveFreq: 2 });
  expect(later).toContain('1 episode was open or waited for a step: resumed');
  expect([...later.matchAll(lost)].map(([, ...steps]) => steps.join())).toEqual(['5,4']);
  expect(refusals).toMatchObject([isLost]);
  const lines = outcome('lost').metrics.map((line) => Object.fromEntries(line));
  expect(lines.map((line) => line['training/global_step'])).toEqual([1, 2, 3, 4, 5, 6]);
  expect(lines.slice(4)).toMatchObject([{ 'client/trajectories': 2 }, { 'client/trajectories': 2 }]);
});

test('a requested step whose device is lost is refused; its groups train at the next request', async () => {
  let isLost = false;
  const gate: Gate = {
    at(moment) {
      if (moment !== 'update' || isLost) return undefined;
      isLost = true;
      return Promise.reject(new DeviceLostError('unknown', 'The test took it.'));
    },
  };
  const agents = async (url: string) => {
    for (const member of [0, 1]) {
      await asked(url, `/t/g/${member}/chat/completions`, { messages: [QUESTION], max_tokens: 8 });
      await asked(url, `/t/g/${member}/rewards`, { reward: member });
    }
    const refused = await asked(url, '/step', {});
    await asked(url, '/t/other/0/chat/completions', { messages: [QUESTION], max_tokens: 8 }); // waits for the new device
    expect((await asked(url, '/status')).json).toMatchObject({ step: 0, complete_groups: 1 });
    const done = await asked(url, '/step', {});
    expect([refused, done]).toMatchObject([
      { status: 503, wait: '1', json: { error: { code: 'device_lost' } } },
      { status: 200, json: { metrics: { 'training/global_step': 1, 'client/trajectories': 2 } } },
    ]);
  };
  await running('manual', 1, agents, { gate, flags: ['--steps', 'manual'] });
  expect(isLost).toBe(true);
});

test('a second step during a step is 409', async () => {
  const gate = new TestGate();
  const run = new RunningCommand(
    [
      ...['serve', 'configs/gsm8k-tool.yaml', ...SMALL, 'name=second', 'trainer.totalTrainingSteps=3'],
      '--port',
      '0',
      '--steps',
      'manual',
    ],
    { createEngine: scriptedEngines(gate) },
  );
  const [, url] = await run.said(/serving .* at (\S+)\/v1 /);
  for (const path of ['/t/a/0', '/t/a/1', '/t/b/0', '/t/b/1', '/t/c/0', '/t/c/1']) {
    await asked(url, `${path}/chat/completions`, { messages: [QUESTION], max_tokens: 8 });
    await asked(url, `${path}/rewards`, { reward: Number(path.at(-1)) });
  }
  gate.upTo(0, 'update');
  const first = asked(url, '/step', {});
  await gate.held('update');
  expect(await asked(url, '/step', {})).toMatchObject({ status: 409, json: { error: { message: /in progress/ } } });
  gate.open();
  expect(await first).toMatchObject({ status: 200, json: { metrics: { 'training/global_step': 1 } } });
  run.signal('SIGINT');
  expect((await run.done).status).toBe(3);
});

test.each([
  [['trainer.pipeline=one-step-off'], /^trainer\.pipeline is set, but in this run clients make the samples/],
  [
    ['trainer.stopWhen={metric: val-core/x/acc/mean@1, atLeast: 1}'],
    /testFreq is 0, so nothing .* Give --evaluate too,/,
  ],
  [['trainer.metricForBestModel=val-core/x/acc/mean@1'], /testFreq is 0, so nothing .* Give --evaluate too,/],
  [
    ['--evaluate', 'trainer.testFreq=0', 'trainer.valBeforeTrain=false'],
    /^--evaluate evaluates every trainer\.testFreq steps, which is 0,/,
  ],
])('serve refuses %s before it opens the model', async (settings, message) => {
  const words = [...SMALL, 'name=refused', 'model.path=missing', ...settings];
  const run = new RunningCommand(['serve', 'configs/gsm8k-tool.yaml', ...words, '--port', '0'], {
    createEngine: scriptedEngines(),
  });
  const { status, said } = await run.done;
  expect([status, said.at(-1)]).toEqual([2, expect.stringMatching(message)]);
});

test('at Ctrl-C, calls in flight end with 503 or an error event, and the command says how to resume', async () => {
  const gate = new TestGate();
  const flags = ['--port', '0', '--token', 'secret', '--strict'];
  const settings = [...SMALL, 'name=stopped', 'trainer.totalTrainingSteps=2'];
  const run = new RunningCommand(['serve', 'configs/gsm8k-tool.yaml', ...settings, ...flags], {
    createEngine: scriptedEngines(gate),
  });
  const [, url] = await run.said(/serving .* at (\S+)\/v1 /);
  const send = (more: object) => {
    const headers = { 'content-type': 'application/json', authorization: 'Bearer secret' };
    const body = JSON.stringify({ messages: [QUESTION], max_tokens: 8, ...more });
    return fetch(`${url}/v1/chat/completions`, { method: 'POST', headers, body });
  };
  expect((await send({ store: true })).status).toBe(400); // --strict
  const stream = await send({ stream: true });
  await stream.text();
  gate.upTo(0, 'turn');
  const cut = await send({ stream: true });
  const plain = send({});
  await gate.reached(3, 'turn');
  run.signal('SIGINT');
  const answers = [await plain, cut];
  for (const answer of answers) expect(await answer.text()).toContain('"code":"run_over"');
  expect(answers[0].status).toBe(503);
  const { status, stdout, said } = await run.done;
  expect(status).toBe(3);
  expect([stdout, ...said].join('\n')).toMatch(/serve .*--token TEXT --strict/);
  expect([stdout, ...said].join('\n')).not.toContain('secret');
});
