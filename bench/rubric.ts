/**
 * Measures the cost of a rubric per sample, including the judge's prompts: the shipped model judges by the criteria of
 * examples/rubric.yaml.
 */

import rubricYaml from '../examples/rubric.yaml?raw';
import type { Gpu } from '../src/gpu/device.ts';
import { readYaml } from '../src/extensions/yaml/index.ts';
import { loadModel } from '../src/model/weights/load.ts';
import { modelTokenizer } from '../src/model/tokenizer/modelTokenizer.ts';
import { WgslEngine } from '../src/model/wgslEngine.ts';
import { engineJudge, parseRubric, type RubricJudge, rubricReward } from '../src/tasks.ts';
import type { ScoredSample } from '../src/tasks/task.ts';
import type { Report } from './report.ts';
import type { StepInputs } from './step.ts';
import { bestSeconds } from './timing.ts';

const ROWS = 2048;
const POSITIONS = 512;
const RESPONSE = 'The cakes cost 2 * $8 = $16 and the stamps cost 5 * $9 = $45. In all it is $61.\n#### 61';

/** @param task provides the questions; each response is a sentence with the problem's number before it */
export async function benchRubric(gpu: Gpu, { loaded, task }: StepInputs): Promise<NonNullable<Report['rubric']>> {
  const model = await loadModel(gpu, loaded.config, POSITIONS, loaded.weights);
  const engine = new WgslEngine(gpu, model, ROWS, { enableGradientCheckpointing: true });
  const judge = engineJudge(engine, modelTokenizer(loaded), ROWS);
  let [shared, whole] = [0, 0];
  const counting: RubricJudge = {
    ...judge,
    logProbs(groups) {
      for (const { prompt, samples } of groups) {
        const rows = samples.map(({ mask }) => mask.lastIndexOf(1));
        shared += prompt.length + rows.reduce((sum, n) => sum + n, 0);
        whole += rows.reduce((sum, n) => sum + prompt.length + n, 0);
      }
      return judge.logProbs(groups);
    },
  };
  const reward = rubricReward(parseRubric(readYaml(rubricYaml, 'examples/rubric.yaml')), {
    judge: counting,
    maxPromptLength: POSITIONS,
  });
  const problems = await Promise.all(Array.from({ length: 16 }, async (_, index) => task.train(index, 1)));
  const sampleOf = (index: number): ScoredSample => ({
    problem: problems[index],
    messages: [],
    response: `${index}. ${RESPONSE}`,
    stopReason: 'completed',
    numTurns: 1,
    numToolCalls: 0,
    numToolErrors: 0,
    responseTokens: 1,
  });
  await reward(sampleOf(0)); // compiles kernels
  [shared, whole] = [0, 0];
  await reward(sampleOf(1));
  const rows = { shared, whole };
  const ms: Record<string, number> = {};
  for (const samples of [1, 4, 16]) {
    const all = Array.from({ length: samples }, (_, i) => sampleOf(i));
    ms[samples] =
      ((await bestSeconds(async () => void (await Promise.all(all.map(async (sample) => reward(sample)))), 3)) * 1000) /
      samples;
  }
  return { rows, ms };
}
