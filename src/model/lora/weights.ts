/**
 * LoRA (arXiv:2106.09685): y = x W + scale * (dropout(x) A) B for the adapted modules, with W frozen. This file has the
 * groups of modules that share a matrix, PEFT's tensor names, and the arena of the adapters' weights.
 *
 * The weights of q, k and v are stored as one matrix, and so are those of gate and up. Therefore the A matrices of
 * these modules are stored side by side ([I, T], I = inputs, T = modules x rank R), and so are their B matrices ([R, J],
 * J = number of adapted columns).
 */

import type { Gpu, View } from '../../gpu/device.ts';
import type { LoraSpan } from '../../gpu/ops/lora_up.ts';
import type { ModelConfig } from '../config.ts';
import type { TensorMap } from '../engine.ts';
import { Arena } from '../weights/arena.ts';
import { type ArenaPlan, type Block, placeBlocks } from '../weights/plan.ts';
import type { LoraConfig, LoraModule } from './config.ts';
import { fillUniform } from '../params.ts';

export { LORA_MODULES, type LoraConfig, type LoraModule, loraModules, loraScale } from './config.ts';

/** The base model's matrix to which adapters belong. */
export type LoraGroup = 'qkv' | 'o' | 'gu' | 'down';

/** The adapted modules of one stored matrix, which has shape [I, Y]: inputs by columns. */
interface LoraGroupPlan {
  group: LoraGroup;
  /** Number of rows of the matrix, which are its inputs. */
  I: number;
  /** Columns of the matrix. */
  Y: number;
  modules: (LoraSpan & { name: string })[];
}

/** Matrices of a layer that have adapted modules; the same in every layer. */
export function loraGroups(config: ModelConfig, targets: readonly LoraModule[]): LoraGroupPlan[] {
  const { hiddenSize: C, intermediateSize: F, headDim: D, numAttentionHeads: H, numKeyValueHeads: K } = config;
  const all: [LoraGroup, number, [LoraModule, string, number][]][] = [
    [
      'qkv',
      C,
      [
        ['q_proj', 'self_attn', H * D],
        ['k_proj', 'self_attn', K * D],
        ['v_proj', 'self_attn', K * D],
      ],
    ],
    ['o', H * D, [['o_proj', 'self_attn', C]]],
    [
      'gu',
      C,
      [
        ['gate_proj', 'mlp', F],
        ['up_proj', 'mlp', F],
      ],
    ],
    ['down', F, [['down_proj', 'mlp', C]]],
  ];
  return all.flatMap(([group, I, members]) => {
    let Y = 0;
    const spans = members.map(([module, part, width]) => {
      const span = { module, name: `${part}.${module}`, column: Y, width };
      Y += width;
      return span;
    });
    const modules = spans.filter(({ module }) => targets.includes(module));
    return modules.length > 0 ? [{ group, I, Y, modules }] : [];
  });
}

/** PEFT's name of A or B of an adapter. */
export const peftName = (layer: number, module: string, half: 'A' | 'B'): string =>
  `base_model.model.model.layers.${layer}.${module}.lora_${half}.weight`;

/**
 * Plans the blocks of the adapters: A and B of every matrix in every layer. PEFT stores A as [R, I] and B as [out, R].
 */
export function planLora(
  config: ModelConfig,
  { rank, targetModules }: Pick<LoraConfig, 'rank' | 'targetModules'>,
  maxBytes = Infinity,
): ArenaPlan {
  const blocks: Omit<Block, 'buffer' | 'offset'>[] = [];
  const add = (label: string, width: number, parts: Block['parts']) => {
    const size = parts.reduce((sum, { shape }) => sum + shape[0] * shape[1], 0);
    blocks.push({ label, size, width, parts });
  };
  const groups = loraGroups(config, targetModules);
  for (let l = 0; l < config.numHiddenLayers; l++)
    for (const { group, I, modules } of groups) {
      const before = (s: number) => modules.slice(0, s).reduce((sum, { width }) => sum + width, 0);
      const part = (s: number, half: 'A' | 'B', shape: number[], column: number) => ({
        name: peftName(l, modules[s].name, half),
        shape,
        column,
        transposed: true,
      });
      add(
        `${l}.${group}.a`,
        modules.length * rank,
        modules.map((_, s) => part(s, 'A', [rank, I], s * rank)),
      );
      add(
        `${l}.${group}.b`,
        before(modules.length),
        modules.map(({ width }, s) => part(s, 'B', [width, rank], before(s))),
      );
    }
  return placeBlocks(blocks, maxBytes);
}

/**
 * Returns newly initialised adapters, as PEFT initialises them: A uniform in +-1 / sqrt(inputs), B zero, so that the
 * adapters have no effect at first.
 */
export function initLora(config: ModelConfig, lora: LoraConfig): TensorMap {
  const tensors: TensorMap = new Map();
  for (const { name, shape } of planLora(config, lora).blocks.flatMap(({ parts }) => parts)) {
    const data = new Float32Array(shape[0] * shape[1]);
    if (name.endsWith('lora_A.weight')) fillUniform(data, 1 / Math.sqrt(shape[1]), lora.seed, name);
    tensors.set(name, { shape, data });
  }
  return tensors;
}

/** A and B of the adapters of one matrix, or the gradients of A and B. */
interface LoraViews {
  /** [I, T] */ a: View;
  /** [R, J] */ b: View;
}

/** A and B of the adapters of every layer, or their gradients, or an optimizer moment. */
export class LoraWeights extends Arena {
  readonly layers: Partial<Record<LoraGroup, LoraViews>>[];

  constructor(gpu: Gpu, config: ModelConfig, lora: LoraConfig, label: string) {
    super(gpu, planLora(config, lora, gpu.maxArenaBytes), label);
    this.layers = Array.from({ length: config.numHiddenLayers }, (_, l) =>
      Object.fromEntries(
        loraGroups(config, lora.targetModules).map(({ group }) => [
          group,
          { a: this.view(`${l}.${group}.a`), b: this.view(`${l}.${group}.b`) },
        ]),
      ),
    );
  }
}

/** Adapters of a model with frozen weights. */
export interface Lora {
  config: LoraConfig;
  groups: ReadonlyMap<LoraGroup, LoraGroupPlan>;
  weights: LoraWeights;
}

/** Allocates the buffers of adapters, without contents. */
export function allocateLora(gpu: Gpu, model: ModelConfig, config: LoraConfig): Lora {
  const weights = new LoraWeights(gpu, model, config, 'lora');
  return { config, groups: new Map(loraGroups(model, config.targetModules).map((g) => [g.group, g])), weights };
}

/** Returns the largest T (columns of A) and the largest I (inputs) among the adapted matrices. */
export function loraWidths(config: ModelConfig, { rank, targetModules }: LoraConfig): { T: number; I: number } {
  const groups = loraGroups(config, targetModules);
  return {
    T: Math.max(...groups.map(({ modules }) => modules.length * rank)),
    I: Math.max(...groups.map(({ I }) => I)),
  };
}
