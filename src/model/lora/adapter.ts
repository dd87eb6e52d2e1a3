/**
 * Reads and writes adapters in PEFT's format, `adapter_config.json` and `adapter_model.safetensors`, so that
 * transformers and webgrpo load each other's adapters. Also merges an adapter into its base.
 */

import type { CheckpointSource } from '../checkpoint/checkpoint.ts';
import type { ModelConfig } from '../config.ts';
import type { TensorMap } from '../engine.ts';
import { InputError } from '../../errors.ts';
import { LORA_MODULES, loraGroups, loraModules, loraScale, type LoraConfig, peftName, planLora } from './weights.ts';
import { readSafetensors, writeSafetensors } from '../checkpoint/safetensors.ts';

/** A LoRA adapter, read from PEFT's format. */
export interface Adapter {
  /** Rank, scale and adapted modules. */
  lora: LoraConfig;
  /** Tensors A and B by PEFT's names. */
  tensors: TensorMap;
  /** `base_model_name_or_path`: the model on which the adapter was trained. */
  baseModel?: string | undefined;
}

const CONFIG = 'adapter_config.json';
const WEIGHTS = 'adapter_model.safetensors';

/**
 * Fields of PEFT's LoraConfig that this file reads (`READ`), and fields that it ignores, because they do not affect what
 * the saved tensors compute (`WITHOUT_EFFECT`).
 */
const READ = [
  'peft_type',
  'base_model_name_or_path',
  'revision',
  'r',
  'lora_alpha',
  'lora_dropout',
  'use_rslora',
  'init_lora_weights',
];
const WITHOUT_EFFECT = [
  ...['task_type', 'inference_mode', 'auto_mapping', 'peft_version', 'runtime_config', 'ensure_weight_tying'],
  ...['target_modules', 'exclude_modules', 'layers_pattern', 'megatron_core', 'qalora_group_size'],
  ...['loftq_config', 'eva_config', 'corda_config', 'lora_ga_config'],
];
/**
 * Fields that change the computation unless they are off: null, false, empty, or "none" for a bias. An unknown field is
 * refused too unless it is off.
 */
const REFUSED = [
  ...[
    'use_dora',
    'use_qalora',
    'use_bdlora',
    'fan_in_fan_out',
    'bias',
    'lora_bias',
    'modules_to_save',
    'trainable_token_indices',
  ],
  ...[
    'rank_pattern',
    'alpha_pattern',
    'layers_to_transform',
    'layer_replication',
    'target_parameters',
    'megatron_config',
  ],
  ...['alora_invocation_tokens', 'arrow_config', 'kasa_config', 'monteclora_config', 'velora_config'],
];

/** Values of `init_lora_weights` that leave the base's weights unchanged. */
const PLAIN_INITS: readonly unknown[] = [undefined, null, true, false, 'gaussian', 'eva', 'orthogonal'];

/** Returns the files of an adapter by name. */
export function saveAdapter({ lora, tensors, baseModel }: Adapter): Map<string, Uint8Array<ArrayBuffer>> {
  const [, name = baseModel, revision] = REVISION.exec(baseModel ?? '') ?? [];
  const json = {
    peft_type: 'LORA',
    task_type: 'CAUSAL_LM',
    base_model_name_or_path: name ?? null,
    revision: revision ?? null,
    inference_mode: true,
    r: lora.rank,
    lora_alpha: lora.alpha,
    lora_dropout: lora.dropout,
    target_modules: [...lora.targetModules],
    use_rslora: lora.useRslora,
    use_dora: false,
    bias: 'none',
    fan_in_fan_out: false,
    init_lora_weights: true,
    modules_to_save: null,
    layers_to_transform: null,
    layers_pattern: null,
    rank_pattern: {},
    alpha_pattern: {},
  };
  return new Map([
    [CONFIG, new TextEncoder().encode(`${JSON.stringify(json, null, 2)}\n`)],
    [WEIGHTS, writeSafetensors(tensors)],
  ]);
}

/**
 * Reads an adapter for a model of this config. Throws InputError if PEFT would compute the adapter differently, or if
 * its tensors do not fit the model.
 */
export async function loadAdapter(source: CheckpointSource, config: ModelConfig): Promise<Adapter> {
  const [configBytes, weightBytes] = [await source(CONFIG), await source(WEIGHTS)];
  if (!configBytes || !weightBytes)
    throw new InputError(`The adapter has no ${configBytes ? WEIGHTS : CONFIG}. Give a folder as PEFT saves it.`);
  const { lora, baseModel } = parseAdapterConfig(parseJson(configBytes));
  const tensors = readSafetensors(weightBytes, WEIGHTS);
  // PEFT's target_modules can be a regular expression, so the adapted modules are found from the tensor names.
  const targetModules = LORA_MODULES.filter((name) =>
    [...tensors.keys()].some((key) => key.includes(`.${name}.lora_`)),
  );
  const adapter = { lora: { ...lora, targetModules }, tensors, baseModel };
  checkTensors(adapter, config);
  return adapter;
}

/** Parses `adapter_config.json`, including dropout. The seed is 0. */
export function parseAdapterConfig(json: unknown): { lora: LoraConfig; baseModel: string | undefined } {
  if (typeof json !== 'object' || json === null) throw new InputError(`${CONFIG} must hold a JSON object.`);
  const keys = json as Record<string, unknown>;
  if (keys['peft_type'] !== 'LORA')
    throw new InputError(`${CONFIG}: "peft_type" is ${show(keys['peft_type'])}; supported: "LORA".`);
  checkInit(keys['init_lora_weights']);
  for (const [key, value] of Object.entries(keys)) {
    if (READ.includes(key) || WITHOUT_EFFECT.includes(key) || isOff(key, value)) continue;
    throw new InputError(
      REFUSED.includes(key)
        ? `${CONFIG}: "${key}" is ${show(value)}, which is not supported. Train the adapter without it.`
        : `${CONFIG}: "${key}" is ${show(value)}, a field that is not known here and may change what is computed. ` +
            'If it does not, set it to null.',
    );
  }
  const number = (key: string, byDefault: number | undefined, least: number, below = Infinity) => {
    const value = keys[key] ?? byDefault;
    if (typeof value === 'number' && value >= least && value < below) return value;
    const limit = below === Infinity ? '' : ` and below ${below}`;
    throw new InputError(`${CONFIG}: "${key}" is ${show(value)}; allowed: a number of at least ${least}${limit}.`);
  };
  const useRslora = keys['use_rslora'] ?? false;
  if (typeof useRslora !== 'boolean')
    throw new InputError(`${CONFIG}: "use_rslora" is ${show(useRslora)}; allowed: true or false.`);
  return {
    lora: {
      rank: number('r', undefined, 1),
      alpha: number('lora_alpha', undefined, 0),
      dropout: number('lora_dropout', 0, 0, 1),
      useRslora: useRslora === true,
      targetModules: loraModules('all-linear'),
      seed: 0,
    },
    baseModel: baseOf(keys),
  };
}

function isOff(key: string, value: unknown): boolean {
  if (value === null || value === false || value === '' || (key === 'bias' && value === 'none')) return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

/** Throws InputError for an initialisation with which PEFT changes the base's weights. */
function checkInit(init: unknown): void {
  if (PLAIN_INITS.includes(typeof init === 'string' ? init.toLowerCase() : init)) return;
  throw new InputError(
    `${CONFIG}: "init_lora_weights" is ${show(init)}, by which PEFT may change the base as well, so that the adapter does not fit the base ` +
      `alone; allowed: true, false, "gaussian", "eva", "orthogonal". Convert it in PEFT: save_pretrained(FOLDER, ` +
      `path_initial_model_for_weight_conversion=FOLDER_BEFORE_TRAINING) for PiSSA, OLoRA, CorDA and LoRA-GA; or merge_and_unload(), ` +
      'and use the merged model.',
  );
}

/** Matches a repository name with a revision: `org/name@revision`. */
const REVISION = /^([\w-][\w.-]*\/[\w-][\w.-]*)@([\w./-]+)$/;

/** Returns the base model in the form of `model.path`: `org/name@revision` if a revision is given. */
function baseOf({ base_model_name_or_path: name, revision }: Record<string, unknown>): string | undefined {
  if (typeof name !== 'string' || name === '') return undefined;
  const at = typeof revision === 'string' && revision !== '' ? `${name}@${revision}` : name;
  return REVISION.test(at) ? at : name;
}

/**
 * Returns the weights with scale * B A added, computed in float64 and rounded once. Weights without an adapter are
 * returned unchanged.
 */
export function mergeAdapter(config: ModelConfig, weights: TensorMap, { lora, tensors }: Adapter): TensorMap {
  const merged: TensorMap = new Map(weights);
  const scale = loraScale(lora);
  for (const { I, modules } of loraGroups(config, lora.targetModules))
    for (const { name } of modules)
      for (let l = 0; l < config.numHiddenLayers; l++) {
        const target = `model.layers.${l}.${name}.weight`;
        const [a, b] = [tensors.get(peftName(l, name, 'A'))!, tensors.get(peftName(l, name, 'B'))!];
        const { shape, data } = weights.get(target)!;
        merged.set(target, { shape, data: mergeOne(data, a.data, b.data, I, scale) });
      }
  return merged;
}

/** Returns weight [O, I] + scale * b a, for a [R, I] and b [O, R]. */
function mergeOne(weight: Float32Array, a: Float32Array, b: Float32Array, I: number, scale: number): Float32Array {
  const R = a.length / I;
  const merged = new Float32Array(weight.length);
  const row = new Float64Array(I);
  for (let o = 0; o < weight.length / I; o++) {
    row.set(weight.subarray(o * I, (o + 1) * I));
    for (let r = 0; r < R; r++) {
      const factor = scale * b[o * R + r];
      for (let i = 0; i < I; i++) row[i] += factor * a[r * I + i];
    }
    merged.set(row, o * I);
  }
  return merged;
}

function checkTensors({ lora, tensors }: Adapter, config: ModelConfig): void {
  const wanted = new Map(planLora(config, lora).blocks.flatMap(({ parts }) => parts.map((p) => [p.name, p.shape])));
  for (const [name, shape] of wanted) {
    const found = tensors.get(name)?.shape;
    if (found?.join() === shape.join()) continue;
    const what = found ? `[${found.join(', ')}]` : 'absent';
    throw new InputError(
      `${WEIGHTS}: "${name}" is ${what}, but rank ${lora.rank} on this model needs [${shape.join(', ')}]. ` +
        `Was it trained on another model?`,
    );
  }
  const extra = [...tensors.keys()].find((name) => !wanted.has(name));
  if (extra !== undefined || wanted.size === 0)
    throw new InputError(
      `${WEIGHTS} has ${extra === undefined ? 'no adapter' : `"${extra}"`}; supported: ${LORA_MODULES.join(', ')} of every layer.`,
    );
  for (const [name, { data }] of tensors) {
    const bad = data.findIndex((value) => !Number.isFinite(value));
    if (bad >= 0) throw new InputError(`${WEIGHTS}: "${name}" holds ${data[bad]} at element ${bad}. It is damaged.`);
  }
}

/**
 * Truncates a value from the file to fit into an error message. JSON cannot write infinity, which 1e999 is read as.
 */
const show = (value: unknown) =>
  (typeof value === 'number' ? String(value) : (JSON.stringify(value) ?? 'absent')).slice(0, 80);

function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch (cause) {
    throw new InputError(`${CONFIG} is not JSON (${(cause as Error).message}).`, { cause });
  }
}
