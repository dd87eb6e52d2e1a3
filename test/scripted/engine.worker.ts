/**
 * The page's engine worker in `vite --mode scripted`. At each moment of gate.ts it sends a request to `/scripted-engine`, which vitePlugin.ts
 * answers.
 */

import * as Comlink from 'comlink';
import tokenizerConfigJson from '../../checkpoints/gsm8k-tool/tokenizer_config.json';
import tokenizerJson from '../../checkpoints/gsm8k-tool/tokenizer.json';
import '../../src/modelParts.ts';
import { DeviceLostError } from '../../src/errors.ts';
import { newCounters } from '../../src/gpu/counters.ts';
import { collectWeights } from '../../src/model/checkpoint/checkpoint.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { createEngineHost } from '../../src/workers/engineHost.ts';
import { ScriptedEngine } from '../scriptedEngine.ts';
import type { Gate, Moment } from './gate.ts';
import { solveWordProblem } from './solver.ts';

type Create = Parameters<typeof createEngineHost>[0];

/** Response of the test to a request of the engine. */
export interface Answer {
  /** The error that the engine must throw. */
  fails?: { name: string; message: string };
  /** True for the engine of the product in place of the scripted one. */
  isReal?: boolean;
}

async function ask(moment: Moment, number: number): Promise<Answer> {
  const send = () => fetch(`/scripted-engine/${moment}/${number}`);
  // Chromium fails a request whose idle connection the server closes at that moment, and all of them if the machine's network changes.
  const response = await send().catch(send);
  if (!response.ok) return {}; // a server without a gate
  const answer = (await response.json()) as Answer;
  const { fails } = answer;
  if (fails?.name === 'DeviceLostError') throw new DeviceLostError('unknown', fails.message);
  if (fails) throw Object.assign(new Error(fails.message), { name: fails.name });
  return answer;
}

/** Sends one request for all turns that start together. */
let asked: Promise<void> | undefined;
const gate: Gate = {
  at(moment, number) {
    const answered = async () => void (await ask(moment, number));
    if (moment !== 'turn') return answered();
    return (asked ??= answered().finally(() => (asked = undefined)));
  },
};

async function createRealEngine(...args: Parameters<Create>): ReturnType<Create> {
  await import('../../src/engineParts.ts');
  const { createDeviceEngine } = await import('../../src/workers/localEngine.ts');
  return createDeviceEngine(...args);
}

Comlink.expose(
  createEngineHost(async (spec, around) => {
    if ((await ask('load', 1)).isReal) return createRealEngine(spec, around);
    const { config, weights, withReference, judgeModel, rolloutWeights, rollout } = spec;
    const engine = new ScriptedEngine({
      ...{ config, solve: solveWordProblem, withReference: (withReference ?? false) || judgeModel !== undefined },
      // An engine with one slot answers the visitor's questions. Tests hold the engine that trains, so this one never waits.
      ...(rollout?.maxNumSeqs !== 1 && { gate }),
      tokenizer: new ChatTokenizer(tokenizerJson, tokenizerConfigJson),
      weights: weights instanceof Map ? weights : await collectWeights(weights),
      hasCopy: rolloutWeights === 'copy',
    });
    Object.assign(globalThis, { scriptedEngine: engine });
    return {
      ...{ model: engine.model, rollout: engine.rollout, destroy: () => engine.lose() },
      ...(engine.reference && { reference: engine.reference, judgeModel: engine.reference, judge: engine.judge }),
      ...(engine.checkpointEngine && { checkpointEngine: engine.checkpointEngine }),
      adapter: {
        ...{ vendor: '', architecture: '', description: 'scripted', isSoftware: true },
        ...{ subgroupSize: 0, subgroupMaxSize: 0, features: [] },
      },
      gpu: {
        counters: newCounters(),
        device: { lost: engine.lost.then(({ message }) => ({ reason: 'unknown', message })) },
      },
    };
  }),
);
