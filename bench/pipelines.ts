/**
 * Compares the three pipelines on one device with the same number of trained samples. Each sample searches four times between its turns
 * (0.2 to 3 s, log-uniform, by problem and sample, so that every pipeline waits for the same searches). All three use asynchronous tools.
 */

import type { Gpu } from '../src/gpu/device.ts';
import type { TrainConfig } from '../src/grpo/config/types.ts';
import { pipelineOf } from '../src/grpo/pipeline/settings.ts';
import { ExperienceQueue, recordOf } from '../src/extensions/pipelines/index.ts';
import { bytesOf } from '../src/grpo/pipeline/record.ts';
import { GrpoTrainer } from '../src/grpo/trainer.ts';
import { modelTokenizer } from '../src/model/tokenizer/modelTokenizer.ts';
import { allocateCopy } from '../src/model/llama.ts';
import { loadModel } from '../src/model/weights/load.ts';
import { WgslEngine } from '../src/model/wgslEngine.ts';
import { registerAgentLoop } from '../src/rollout/agent/loop.ts';
import { WgslRolloutEngine } from '../src/rollout/server/server.ts';
import { keyedRng } from '../src/tasks/random.ts';
import type { Task } from '../src/tasks/task.ts';
import { defineTool } from '../src/tasks/tool.ts';
import { copiedWeights } from '../src/workers/checkpointEngine.ts';
import { engineSizes } from '../src/workers/engineSpec.ts';
import type { Report } from './report.ts';
import searches from './searches/loop.js';
import type { StepInputs } from './step.ts';

const [MIN_MS, MAX_MS] = [200, 3000];
/** Settings of fully-async: parameters are synced every two steps, and staleness 0.5 allows half of these samples to be generated ahead. */
const ASYNC = { stalenessThreshold: 0.5, triggerParameterSyncStep: 2, partialRollout: true, onStale: 'drop' } as const;

type Pipelines = NonNullable<Report['pipelines']>;
type Measured = Pipelines['onPolicy'];

export async function benchPipelines(gpu: Gpu, inputs: StepInputs, quick: boolean): Promise<Pipelines> {
  const steps = quick ? 3 : 8;
  const asked: Record<'onPolicy' | 'oneStepOff' | 'fullyAsync', TrainConfig['trainer']['pipeline']> = {
    onPolicy: 'on-policy',
    oneStepOff: 'one-step-off',
    fullyAsync: 'fully-async',
  };
  await run(gpu, inputs, 'on-policy', { steps: 1, scale: 0 }); // compiles kernels
  const measured: Partial<Record<keyof typeof asked, Measured>> = {};
  for (const [name, pipeline] of Object.entries(asked))
    measured[name as keyof typeof asked] = await run(gpu, inputs, pipeline, { steps, scale: 1 });
  const { data, rollout } = inputs.config;
  return { samples: steps * data.trainBatchSize * rollout.n, ...(measured as Record<keyof typeof asked, Measured>) };
}

/** @param size scale = factor by which the searches' times are multiplied */
async function run(
  gpu: Gpu,
  { config: recipe, loaded }: StepInputs,
  pipeline: TrainConfig['trainer']['pipeline'],
  { steps, scale }: { steps: number; scale: number },
): Promise<Measured> {
  const config = structuredClone(recipe);
  Object.assign(config.trainer, { pipeline, totalTrainingSteps: steps, testFreq: 0, valBeforeTrain: false });
  Object.assign(config.asyncTraining, ASYNC);
  config.rollout.agent.defaultAgentLoop = 'searches';
  const sizes = engineSizes(config);
  const policy = await loadModel(gpu, loaded.config, sizes.maxPositions, loaded.weights);
  const copy = pipelineOf(config).isAsync ? allocateCopy(gpu, policy) : undefined;
  const model = new WgslEngine(gpu, policy, sizes.maxTokenLen);
  const rollout = new WgslRolloutEngine(gpu, copy ?? policy, sizes.rollout);
  const tokenizer = modelTokenizer(loaded);
  const checkpointEngine = copy && copiedWeights(gpu, { policy, copy, rollout });
  const engine = { tokenizer, model, rollout, ...(checkpointEngine && { checkpointEngine }) };
  const trainer = new GrpoTrainer({ config, task: searching(scale), engine });
  const started = performance.now();
  const { history } = await trainer.fit();
  const seconds = (performance.now() - started) / 1000;
  const mean = (values: (number | undefined)[]) => values.reduce<number>((a, b) => a + (b ?? 0), 0) / values.length;
  const idle = history.map(
    (metrics) => metrics['trainer/idle_ratio'] ?? metrics['timing_s/gen'] / metrics['timing_s/step'],
  );
  const staleShare = mean(history.map((metrics) => metrics['training/stale_tokens_share']));
  return { seconds, idleShare: mean(idle), staleShare };
}

searches({ registerAgentLoop });

const searching = (scale: number): Task => ({
  name: 'searching',
  train: (index) => ({ id: `${index}`, messages: [{ role: 'user', content: `Find ${index}.` }], answer: '' }),
  heldOut: () => [],
  tools: [
    defineTool({
      name: 'search',
      description: '',
      parameters: { type: 'object', properties: { query: { type: 'string' } }, required: ['query'] },
      async execute({ query }, { sampleId, problem }) {
        const of = sampleId.slice(sampleId.lastIndexOf('.'));
        const ms = MIN_MS * (MAX_MS / MIN_MS) ** keyedRng('pipelines', problem.id, of, query).uniform();
        await new Promise((resolve) => setTimeout(resolve, scale * ms));
        return 'Lorum';
      },
    }),
  ],
  // The rewards within a group differ, so that training has work to do.
  reward: ({ response, problem }) => ({ score: keyedRng(problem.id, response).uniform() < 0.5 ? 1 : 0, acc: 0 }),
});

/** Measures the experience queue with records of 128-token samples, which are put and taken group by group. */
export async function benchQueue(quick: boolean): Promise<NonNullable<Report['queue']>> {
  const [groups, n, length] = [quick ? 200 : 2000, 8, 128];
  const queue = new ExperienceQueue();
  const problem = { id: 'p', messages: [{ role: 'user' as const, content: 'Find it.' }], answer: '' };
  const numbers = new Float32Array(length);
  const ids = new Uint32Array(length);
  const records = Array.from({ length: groups }, (_, g) =>
    Array.from({ length: n }, (__, s) => {
      const trajectory = {
        ...{
          promptIds: ids.subarray(0, 16),
          responseIds: ids,
          mask: new Uint8Array(length),
          logProbs: numbers,
          logMass: numbers,
        },
        ...{ weightVersions: ids, stopReason: 'completed' as const, numTurns: 1, numToolCalls: 0, numToolErrors: 0 },
      };
      const sample = { problem, group: g, trajectory, messages: [], reward: { score: 1, acc: 1 } };
      return recordOf(sample, { uid: `1.${g}`, sample: s, worker: 'local' });
    }),
  );
  const bytes = records.flat().reduce((sum, record) => sum + bytesOf(record), 0);
  const started = performance.now();
  for (const group of records) {
    await queue.put(group);
    await queue.takeGroup(n);
  }
  const seconds = (performance.now() - started) / 1000;
  return { putsPerS: (groups * n) / seconds, bytesPerS: bytes / seconds };
}
