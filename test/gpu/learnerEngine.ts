/** A tiny random model with the example's config, for tests of Learner, and an engine's worker. */
import * as Comlink from 'comlink';
import { config } from '../../examples/grpo-loop.ts';
import { initWeights } from '../../src/model/params.ts';
import { gsm8kTokenizer } from '../gsm8kTokenizer.ts';
import type { EngineSpec } from '../../src/workers/engineSpec.ts';
import { createEngineHost } from '../../src/workers/engineHost.ts';
import { createDeviceEngine, engineSizes } from '../../src/workers/localEngine.ts';
import { chatConfig } from './tinySpec.ts';
import { workerAt } from '../stub.ts';

const { tokenizer: tokenizerJson, config: tokenizerConfigJson } = gsm8kTokenizer;

export function learnerSpec(more: Partial<EngineSpec> = {}): EngineSpec {
  const model = { ...chatConfig, initializerRange: 0.1 };
  const weights = initWeights(model, 9);
  return { ...engineSizes(config), config: model, weights, tokenizerJson, tokenizerConfigJson, ...more };
}

/** Returns an engine's worker: a real one in a browser, its host behind a channel in Node. */
export function workerOf(): Worker {
  if (typeof Worker !== 'undefined')
    return new Worker(new URL('../../src/engine.worker.ts', import.meta.url), { type: 'module' });
  const { port1, port2 } = new MessageChannel();
  Comlink.expose(createEngineHost(createDeviceEngine), port1);
  port2.start();
  return workerAt(port2, () => {
    port1.close();
    port2.close();
  });
}
