/** Describes a model of the hub before it is trained: its properties, its costs, and the recipe to train it with. */

import { parseTrainConfig } from '../../src/grpo/config/text.ts';
import { bindingBytes, requestAdapter } from '../../src/gpu/adapter.ts';
import { lookUpModel } from '../../src/model/checkpoint/hub.ts';
import { parameterCount } from '../../src/model/params.ts';
import { engineSizes } from '../../src/workers/engineSpec.ts';
import { type PlanItem, planMemory } from '../../src/workers/memoryPlan.ts';
import { DEFAULT_RECIPE, fetchRecipe } from '../state/recipes.ts';

export interface Offered {
  name: string;
  parameters: number;
  /** Bytes to download. */
  bytes: number;
  /** GPU memory that training it needs. */
  plan: PlanItem[];
  /** Largest buffer that the adapter can bind, in bytes. */
  largestBuffer: number;
  /** Changes to the default recipe, as parameters of an address. */
  changes: URLSearchParams;
}

/** Trains only adapters, with few tries at a time, and describes the tool in the prompt. */
const SETTINGS = [
  'model.loraRank=32',
  'model.loraAlpha=32',
  'model.targetModules=[all-linear]',
  'model.enableGradientCheckpointing=true',
  'rollout.maxNumSeqs=16',
  'rollout.multiTurn.toolSchemasInPrompt=true',
  'data.maxPromptLength=640',
  'data.maxResponseLength=256',
  'data.valMaxSamples=32',
  'actor.ppoMaxTokenLenPerGpu=2048',
];

const LEARNING_RATE = '2e-5';

/** Looks a model up on the hub. Throws InputError. */
export async function lookUp(name: string, endpoint: string | undefined): Promise<Offered> {
  const [{ config: model, bytes }, adapter, text] = await Promise.all([
    lookUpModel(name, { endpoint }),
    requestAdapter(),
    fetchRecipe(DEFAULT_RECIPE),
  ]);
  const overrides = [`model.path=${name}`, ...SETTINGS];
  const changes = new URLSearchParams([['lr', LEARNING_RATE], ...overrides.map((text) => ['set', text])]);
  const largestBuffer = bindingBytes(adapter.limits);
  const sizes = engineSizes(parseTrainConfig(text, { source: DEFAULT_RECIPE, overrides, note: () => {} }));
  const plan = planMemory({ config: model, ...sizes, maxArenaBytes: largestBuffer });
  return { name, parameters: parameterCount(model), bytes, plan, largestBuffer, changes };
}
