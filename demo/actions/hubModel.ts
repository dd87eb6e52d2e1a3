/** Describes a model of the hub or of a GGUF file before it is trained: its properties, its costs, and the recipe to train it with. */

import '../../src/modelParts.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/index.ts';
import { bindingBytes, requestAdapter, summaryOf } from '../../src/gpu/adapter.ts';
import { lookUpModel } from '../../src/model/checkpoint/hub.ts';
import { openCheckpoint } from '../../src/model/checkpoint/open.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import { parameterCount } from '../../src/model/params.ts';
import { engineSizes } from '../../src/workers/engineSpec.ts';
import { keepGguf, keptName } from '../../src/workers/keptGguf.ts';
import { type PlanItem, planMemory } from '../../src/workers/memoryPlan.ts';
import { DEFAULT_RECIPE, fetchRecipe } from '../state/recipes.ts';

export interface Offered {
  name: string;
  parameters: number;
  /** Size of the model in bytes: of its download from the hub, or of its GGUF file. */
  bytes: number;
  /** True if the model is a GGUF file that this browser stores already. */
  isKept: boolean;
  /** GPU memory that training the model needs, item by item. */
  plan: PlanItem[];
  /** Largest buffer that the adapter can bind, in bytes. */
  largestBuffer: number;
  /** Changes to the default recipe, as address parameters. */
  changes: URLSearchParams;
}

/** Settings for models of the hub: train only adapters, with few tries at a time, and describe the tool in the prompt. */
const SETTINGS = [
  'model.loraRank=32',
  'model.loraAlpha=32',
  'model.targetModules=[all-linear]',
  'model.enableGradientCheckpointing=true',
  'rollout.maxNumSeqs=16',
  'data.maxPromptLength=640',
  'data.maxResponseLength=256',
  'data.valMaxSamples=32',
  'actor.ppoMaxTokenLenPerGpu=2048',
];

const LEARNING_RATE = '2e-5';

/** Looks a model up on the hub. Throws InputError. */
export async function lookUp(name: string, endpoint: string | undefined): Promise<Offered> {
  const { config, bytes } = await lookUpModel(name, { endpoint });
  return offered(name, config, { bytes, isKept: false });
}

/** Checks the header of a GGUF file, and keeps the file in this browser. Throws InputError. */
export async function keepFile(file: File): Promise<Offered> {
  const { config } = await openCheckpoint({
    gguf: keptName(file.name),
    size: async () => file.size,
    read: async (_, begin, end) => new Uint8Array(await file.slice(begin, end).arrayBuffer()),
  });
  return offered(await keepGguf(file), config, { bytes: file.size, isKept: true });
}

async function offered(name: string, model: ModelConfig, file: Pick<Offered, 'bytes' | 'isKept'>): Promise<Offered> {
  const [adapter, text] = await Promise.all([requestAdapter(), fetchRecipe(DEFAULT_RECIPE)]);
  const overrides = [`model.path=${name}`, ...SETTINGS];
  const changes = new URLSearchParams([['lr', LEARNING_RATE], ...overrides.map((text) => ['set', text])]);
  const largestBuffer = bindingBytes(adapter.limits);
  const sizes = engineSizes(parseTrainConfig(text, { source: DEFAULT_RECIPE, overrides, note: () => {} }));
  const adapterSummary = summaryOf(adapter.info, adapter.features);
  const plan = planMemory({ config: model, ...sizes, adapterSummary, maxArenaBytes: largestBuffer });
  return { name, parameters: parameterCount(model), ...file, plan, largestBuffer, changes };
}
