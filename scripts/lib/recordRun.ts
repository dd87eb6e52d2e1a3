/** Runs the loops of lessons in Node, as a lesson's worker does, for scripts/record-run.mjs and record-stale.mjs. */

import { readFileSync } from 'node:fs';
import { SETTING, timesOf } from '../../demo/lessons/5-stale/times.ts';
import { ratiosOf } from '../../demo/lessons/5-stale/weights.ts';
import { runLoop, type LoopOptions, type LoopStep } from '../../demo/lessons/kit/runLoop.ts';
import { disk } from '../../src/cli/files.ts';
import * as learners from '../../src/extensions/learner/index.ts';
import { keptSteps, readKept } from '../../src/extensions/replay/index.ts';
import * as library from '../../src/index.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { installWebGpu, readCheckpoint } from '../../src/node.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';
import * as tasks from '../../src/tasks.ts';

/** The engine of all runs, with what it started from. */
let opened: { engine: library.LocalEngine; weights: library.TensorMap; optimizer: library.TensorMap } | undefined;

/** Opens the engine of a loop's config, or puts the opened one back to its start. The loops of lessons have equal sizes. */
async function fresh(config: library.TrainConfig): Promise<library.LocalEngine> {
  if (opened) {
    const { engine, weights, optimizer } = opened;
    await engine.model.importWeights(weights);
    await engine.model.importOptimizer(optimizer);
    await engine.rollout.resetCache(0);
    return engine;
  }
  await installWebGpu();
  const checkpoint = await readCheckpoint('checkpoints/reverse-text');
  const engine = await library.createLocalEngine({ ...library.engineSizes(config), ...checkpoint });
  const [weights, optimizer] = [await engine.model.exportWeights(), await engine.model.exportOptimizer()];
  opened = { engine, weights, optimizer };
  return engine;
}

/** Runs the loop of a file from the shipped model. */
export async function run(file: string, options: LoopOptions, onStep: (step: LoopStep) => void): Promise<void> {
  await runLoop({
    text: readFileSync(file, 'utf8'),
    library: { webgrpo: library, 'webgrpo/learner': learners, 'webgrpo/tasks': tasks },
    addressOf: (script) => `data:text/javascript,${encodeURIComponent(script)}`,
    openEngine: fresh,
    options,
    onStep,
  });
}

export { SETTING, timesOf };

/** Frees the engine. */
export const close = (): void => opened?.engine.destroy();

/** Returns the values of a step that lesson 5 stores. */
export const summaryOf = ({ reward, clipped, logProbs }: LoopStep) => ({ reward, clipped, ...ratiosOf(logProbs) });

/** Tokens that one author wrote under one version of the weights: text, age in steps or -1 for a tool or the template, number of tokens. */
export type Piece = [text: string, age: number, tokens: number];

/** Returns what lesson 5 shows of a run folder with kept rollouts: the ages of each step's tokens, and one try per group of a step. */
export async function staleRun(path: string, shownStep: number) {
  const folder = RunFolder.open(disk, path);
  const { tokenizerJson, tokenizerConfigJson } = await readCheckpoint('checkpoints/gsm8k-tool');
  const tokenizer = new ChatTokenizer(tokenizerJson, tokenizerConfigJson);
  const ages: number[][] = [];
  let tries: Piece[][] = [];
  for (const step of await keptSteps(folder)) {
    const { samples } = await readKept(folder, step);
    const counts: number[] = [];
    const bySample = samples.map(({ group, trajectory: { responseIds, mask, weightVersions } }) => {
      const pieces: { ids: number[]; age: number }[] = [];
      responseIds.forEach((id, t) => {
        const age = mask[t] === 1 ? Math.max(0, step - 1 - (weightVersions?.[t] ?? step - 1)) : -1;
        if (age >= 0) counts[age] = (counts[age] ?? 0) + 1;
        if (pieces.at(-1)?.age === age) pieces.at(-1)!.ids.push(id);
        else pieces.push({ ids: [id], age });
      });
      return { group, pieces: pieces.map(({ ids, age }): Piece => [tokenizer.decode(ids), age, ids.length]) };
    });
    ages.push(Array.from(counts, (count) => count ?? 0));
    if (step === shownStep)
      tries = [...new Set(bySample.map(({ group }) => group))].map(
        (number) =>
          bySample
            .filter(({ group }) => group === number)
            .reduce((most, one) => (one.pieces.length > most.pieces.length ? one : most)).pieces,
      );
  }
  return { ages, tries };
}
