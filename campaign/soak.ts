/**
 * Runs thousands of steps of the smallest recipe in one process, and many requests to the rollout engine. Memory of process and device,
 * handles and listeners must be the same as after the first hundred.
 */

import { setImmediate as nextTurn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { installDawn } from '../src/cli/dawn.ts';
import { resolveTrainConfig } from '../src/grpo/config/resolve.ts';
import { GrpoTrainer } from '../src/grpo/trainer.ts';
import { parseModelConfig } from '../src/model/config.ts';
import { initWeights } from '../src/model/params.ts';
import { taskTokenizer } from '../src/extensions/sft/index.ts';
import { reverseTextTask } from '../src/tasks.ts';
import { createLocalEngine, engineSizes, type LocalEngine } from '../src/workers/localEngine.ts';
import type { CampaignOptions, CampaignPart, CampaignRow } from './part.ts';

/**
 * Number of training steps and of rollout requests in the complete form. Each of the two takes at most FULL_S seconds, or SHORT_S in the
 * short form.
 */
const STEPS = 5000;
const REQUESTS = 100_000;
const FULL_S = 360;
const SHORT_S = 5;
/** Number of concurrent requests. */
const BATCH = 32;
/** Bytes of heap growth that uncollected garbage can explain, and of process growth, which includes the driver's pools. */
const HEAP_ROOM = 4 << 20;
const PROCESS_ROOM = 64 << 20;

/** Measurements that must not grow: bytes, and numbers of objects. */
interface Footprint {
  heap: number;
  process: number;
  'GPU buffers': number;
  'GPU bytes': number;
  'bind groups': number;
  pipelines: number;
  handles: number;
  listeners: number;
}

async function run({ seed, full, say }: CampaignOptions): Promise<CampaignRow[]> {
  setFlagsFromString('--expose_gc');
  const collect = runInNewContext('gc') as () => void;
  await installDawn();
  const config = resolveTrainConfig({
    name: 'soak',
    seed,
    model: { path: 'in memory' },
    data: { trainBatchSize: 2, maxPromptLength: 32, maxResponseLength: 5, valMaxSamples: 2 },
    rollout: { n: 4, maxNumSeqs: BATCH, agent: { defaultAgentLoop: 'single_turn' } },
    actor: { ppoMiniBatchSize: 2, ppoMaxTokenLenPerGpu: 512 },
    trainer: { totalTrainingSteps: STEPS, valBeforeTrain: false, testFreq: 0, kernelTuning: 'off' },
  });
  const task = reverseTextTask();
  const { tokenizer, config: tokenizerConfigJson } = await taskTokenizer(task, 263);
  const model = parseModelConfig({
    architectures: ['LlamaForCausalLM'],
    vocab_size: 263,
    hidden_size: 16,
    intermediate_size: 16,
    num_hidden_layers: 1,
    num_attention_heads: 1,
    num_key_value_heads: 1,
    max_position_embeddings: 64,
    tie_word_embeddings: true,
  });
  const files = { tokenizerJson: tokenizer, tokenizerConfigJson, config: model, weights: initWeights(model, seed) };
  const engine = await createLocalEngine({ ...engineSizes(config), ...files });
  try {
    const seconds = full ? FULL_S : SHORT_S;
    const look = () => footprint(engine, collect);
    const trainer = new GrpoTrainer({ config, task, engine });
    const stepRow = await soak({ what: 'training steps', count: STEPS, seconds, look, say, one: () => trainer.step() });
    await engine.rollout.resetCache();
    let sent = 0;
    const one = () => Promise.all(Array.from({ length: BATCH }, () => request(engine, seed, sent++)));
    const requests = await soak({ what: 'requests', count: REQUESTS, each: BATCH, seconds, look, say, one });
    return [stepRow, requests];
  } finally {
    engine.destroy();
  }
}

/** Runs a short turn. Most turns have different prompts, and some are aborted. */
async function request({ rollout, tokenizer }: LocalEngine, seed: number, index: number): Promise<void> {
  const contextIds = Uint32Array.from(tokenizer.encode(`reverse ${index % 500}`));
  const requestId = `soak-${index}`;
  const sampling = {
    ...{ temperature: 1, topK: 0, topP: 1, minP: 0 },
    ...{ maxNewTokens: 1 + (index % 5), stopTokenIds: [] },
  };
  const answer = rollout.generate({
    requestId,
    contextIds,
    promptLength: contextIds.length,
    key: [seed, index],
    sampling,
  });
  if (index % 50 === 0) rollout.abort([requestId]);
  await answer;
  rollout.release(requestId);
}

interface Soak {
  what: string;
  count: number;
  /** Number of steps or requests that a call of `one` runs. */
  each?: number;
  seconds: number;
  one(): Promise<unknown>;
  look(): Footprint;
  say(line: string): void;
}

/**
 * Compares the memory and objects at the end with those after the first hundred steps or requests, or after the first quarter of the time
 * if that comes earlier.
 */
async function soak({ what, count, each = 1, seconds, one, look, say }: Soak): Promise<CampaignRow> {
  const started = performance.now();
  const isOver = (share: number) => performance.now() - started > 1000 * seconds * share;
  let done = 0;
  while (done < 100 * each && !isOver(0.25)) {
    await one();
    done += each;
  }
  const before = look();
  const first = done;
  while (done < count && !isOver(1)) {
    await one();
    done += each;
    if (done % (1000 * each) === 0) say(`${what}: ${done}, ${summary(look())}`);
  }
  // A resource of the last request can still be closing: it gets a thousand turns of the event loop.
  for (let turn = 0; turn < 1000 && look().handles > before.handles; turn++) await nextTurn();
  const after = look();
  const room: Partial<Footprint> = { heap: HEAP_ROOM, process: PROCESS_ROOM };
  const grown = (Object.keys(before) as (keyof Footprint)[]).filter(
    (key) => after[key] > before[key] + (room[key] ?? 0),
  );
  const failures = grown.map((key) => `${what}: ${key} ${before[key]} after ${first}, ${after[key]} after ${done}`);
  const note = `after ${first}: ${summary(before)}; at the end: ${summary(after)}`;
  return {
    what: `${what} in one process: memory, buffers, handles and listeners stay`,
    tried: done,
    wrong: failures.length,
    note,
    failures,
  };
}

function footprint({ gpu }: LocalEngine, collect: () => void): Footprint {
  collect();
  collect();
  const { heapUsed, rss } = process.memoryUsage();
  const { buffers, bytes, bindGroups, pipelines } = gpu.counters;
  return {
    heap: heapUsed,
    process: rss,
    'GPU buffers': buffers,
    'GPU bytes': bytes,
    'bind groups': bindGroups,
    pipelines,
    handles: process.getActiveResourcesInfo().length,
    listeners: process.eventNames().reduce((sum, name) => sum + process.listenerCount(name), 0),
  };
}

const mib = (bytes: number) => (bytes / 2 ** 20).toFixed(1);

const summary = (at: Footprint) =>
  `heap ${mib(at.heap)} MiB, process ${mib(at.process)} MiB, ${at['GPU buffers']} GPU buffers of ${mib(at['GPU bytes'])} MiB, ` +
  `${at.handles} handles, ${at.listeners} listeners`;

export const soakPart: CampaignPart = { name: 'soak', run };
