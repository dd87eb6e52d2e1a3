/**
 * Compares two ways to await tools, for samples that search between their turns. The agent loop awaits tools sample by sample. A
 * synchronous trainer has a barrier: all samples generate, then all tools are awaited, then the next turn starts. Both use the same engine,
 * tokens and latencies. Latencies are log-uniform from 0.2 to 3 s (mean 1.0 s), so most searches are quick.
 */

import type { Gpu } from '../src/gpu/device.ts';
import type { ChatTokenizer } from '../src/model/tokenizer/chat.ts';
import { type AgentLoop, registerAgentLoop, runAgentLoop } from '../src/rollout/agent/loop.ts';
import { WgslRolloutEngine } from '../src/rollout/server/server.ts';
import { keyedRng } from '../src/tasks/random.ts';
import type { Problem } from '../src/tasks/task.ts';
import { searchTool } from '../src/tasks.ts';
import { busySeconds } from './busy.ts';
import { HEADLINE, randomModel } from './models.ts';
import type { Report } from './report.ts';

const [MIN_MS, MAX_MS] = [200, 3000];
const TURNS = 5;
/** Number of samples in a step of the default recipe: 16 problems x 8 samples. */
const STEP_SAMPLES = 128;
const TURN_TOKENS = 12;

/** Both ways run in turn, so that a busy machine disturbs both. The faster round of each counts. */
const ROUNDS = 2;

interface Measured {
  ms: number;
  lost: number;
  /** Share of the measured time in which the GPU computed. */
  busy?: number;
}

export async function benchAsyncTools(
  gpu: Gpu,
  quick: boolean,
  tokenizer: ChatTokenizer,
): Promise<NonNullable<Report['asyncTools']>> {
  const samples = quick ? 8 : STEP_SAMPLES;
  const bench = new AsyncToolsBench(gpu, samples, tokenizer);
  await bench.run('bench_async', 0); // compiles kernels
  const rounds: { barrier: Measured; asynchronous: Measured }[] = [];
  for (let round = 0; round < (quick ? 1 : ROUNDS); round++)
    rounds.push({ barrier: await bench.measure('bench_barrier'), asynchronous: await bench.measure('bench_async') });
  const [barrier, asynchronous] = [best(rounds.map((r) => r.barrier)), best(rounds.map((r) => r.asynchronous))];
  const lost = rounds.reduce((sum, r) => sum + r.barrier.lost + r.asynchronous.lost, 0);
  return {
    samples,
    turns: TURNS,
    ...searchMs(samples),
    barrierMs: barrier.ms,
    asyncMs: asynchronous.ms,
    lostSamples: lost,
    ...(barrier.busy !== undefined && { barrierBusyShare: barrier.busy }),
    ...(asynchronous.busy !== undefined && { asyncBusyShare: asynchronous.busy }),
  };
}

class AsyncToolsBench {
  readonly #gpu: Gpu;
  readonly #samples: number;
  readonly #engine: WgslRolloutEngine;
  readonly #tokenizer: ChatTokenizer;

  constructor(gpu: Gpu, samples: number, tokenizer: ChatTokenizer) {
    this.#gpu = gpu;
    this.#samples = samples;
    this.#tokenizer = tokenizer;
    const sizes = { maxNumSeqs: samples, slotCapacity: 320, maxPrompts: samples / 8, maxPromptLength: 64 };
    const model = randomModel(gpu, HEADLINE);
    this.#engine = new WgslRolloutEngine(gpu, model, { ...sizes, maxBatchedTokens: 1024 });
  }

  async measure(agentLoop: string): Promise<Measured> {
    let result = { ms: 0, lost: 0 };
    const busy = await busySeconds(this.#gpu, async () => void (result = await this.run(agentLoop, 1)));
    return { ...result, ...(busy !== undefined && { busy: (1000 * busy) / result.ms }) };
  }

  /** Runs all samples once, from an empty prefix cache. Search times are multiplied by `scale`. */
  async run(agentLoop: string, scale: number): Promise<{ ms: number; lost: number }> {
    await this.#engine.resetCache();
    const wait = barrier(this.#samples);
    const step = turns(agentLoop === 'bench_barrier' ? wait : () => Promise.resolve());
    registerAgentLoop(agentLoop, step);
    const started = performance.now();
    const outputs = await Promise.all(
      Array.from({ length: this.#samples }, (_, s) => this.#sample(agentLoop, s, scale)),
    );
    const whole = outputs.filter(
      ({ trajectory: t }) => t.stopReason === 'completed' && t.numTurns === TURNS && t.numToolCalls === TURNS - 1,
    );
    return { ms: performance.now() - started, lost: this.#samples - whole.length };
  }

  #sample(agentLoop: string, s: number, scale: number) {
    const group = Math.floor(s / 8);
    const problem: Problem = { id: `${group}`, messages: [{ role: 'user', content: `Find ${group}.` }], answer: '' };
    let call = 0;
    const latencyMs = () => scale * latency(s, call++);
    return runAgentLoop({
      engine: this.#engine,
      tokenizer: this.#tokenizer,
      problem,
      agentLoop,
      requestId: `${s}`,
      key: [1, s],
      tools: [searchTool(() => [{ id: '1', title: 'Ana lives in Lorum' }], { latencyMs })],
      sampling: { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens: TURN_TOKENS, stopTokenIds: [] },
      limits: {
        maxPromptLength: 64,
        maxResponseLength: 320,
        contextLength: 384,
        maxAssistantTurns: TURNS,
        maxToolCalls: TURNS,
        toolTimeoutMs: 60_000,
        maxToolResponseLength: 64,
        toolResponseTruncateSide: 'right',
      },
    });
  }
}

const best = (runs: Measured[]): Measured => runs.reduce((a, b) => (b.ms < a.ms ? b : a));

/** Every turn has the same number of tokens and ends with a search, whatever the random weights sample. */
const turns =
  (wait: () => Promise<void>): AgentLoop =>
  async (sample) => {
    for (let turn = 1; ; turn++) {
      await sample.generate();
      if (turn === TURNS) return 'completed';
      await wait();
      const stop = await sample.callTools([{ name: 'search', args: { query: 'Ana' } }]);
      if (stop) return stop;
      await wait();
    }
  };

/** Returns the milliseconds of a sample's search `call`, the same in both modes. */
function latency(sample: number, call: number): number {
  return MIN_MS * (MAX_MS / MIN_MS) ** keyedRng('async-tools', sample, call).uniform();
}

/**
 * Returns the milliseconds that searches alone take: with a barrier, the sum of the slowest search of each turn; without, the searches of
 * the slowest sample.
 */
function searchMs(samples: number): { barrierSearchMs: number; asyncSearchMs: number } {
  const calls = Array.from({ length: samples }, (_, s) => Array.from({ length: TURNS - 1 }, (_, c) => latency(s, c)));
  const slowest = calls[0].map((_, c) => Math.max(...calls.map((ofSample) => ofSample[c])));
  const sum = (values: number[]) => values.reduce((a, b) => a + b, 0);
  return { barrierSearchMs: sum(slowest), asyncSearchMs: Math.max(...calls.map(sum)) };
}

/** Returns a reusable barrier: a function whose promises resolve as soon as `count` callers wait for them. */
function barrier(count: number): () => Promise<void> {
  let waiting: (() => void)[] = [];
  return () =>
    new Promise((resolve) => {
      waiting.push(resolve);
      if (waiting.length < count) return;
      const all = waiting;
      waiting = [];
      for (const go of all) go();
    });
}
