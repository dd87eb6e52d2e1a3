/** llama.cpp through node-llama-cpp, which is not a dependency. `node scripts/llama-cpp.mjs` installs it in a separate folder. */

import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

/** The parts of node-llama-cpp that this file uses. */
interface NodeLlamaCpp {
  getLlama(options: object): Promise<{ loadModel(options: { modelPath: string }): Promise<LlamaModel> }>;
}
interface LlamaModel {
  createContext(options: object): Promise<{ getSequence(): LlamaSequence; dispose(): Promise<void> }>;
  dispose(): Promise<void>;
}
interface LlamaSequence {
  controlledEvaluate(
    tokens: [token: number, options: object][],
  ): Promise<({ next: { probabilities: Map<number, number> } } | undefined)[]>;
}

/** Returns log-probs of ids[1..], each given all ids before it. `folder` is where node-llama-cpp was installed. */
export async function logProbsOf(folder: string, file: string, ids: readonly number[]): Promise<number[]> {
  const entry = pathToFileURL(join(folder, 'node_modules', 'node-llama-cpp', 'dist', 'index.js')).href;
  const { getLlama } = (await import(/* @vite-ignore */ entry)) as NodeLlamaCpp;
  const llama = await getLlama({ build: 'never', gpu: false, logLevel: 'error' });
  const model = await llama.loadModel({ modelPath: file });
  const context = await model.createContext({
    contextSize: 256,
    sequences: 1,
    experimentalKvCacheKeyType: 'F32',
    experimentalKvCacheValueType: 'F32',
  });
  try {
    const given = ids.slice(0, -1).map((id): [number, object] => [id, { generateNext: { probabilities: true } }]);
    const results = await context.getSequence().controlledEvaluate(given);
    return results.map((result, i) => Math.log(result?.next.probabilities.get(ids[i + 1]) ?? NaN));
  } finally {
    await context.dispose();
    await model.dispose();
  }
}
