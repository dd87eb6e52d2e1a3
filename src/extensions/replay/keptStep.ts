/**
 * The format of the file rollouts/step-N.safetensors, in which `trainer.keepRollouts` stores a step: all inputs of its update except the
 * weights. Values per token are concatenated sample by sample into one column; docs/reference/files.md lists the columns.
 */

import { concat } from '../../concat.ts';
import { InputError, UserCodeError } from '../../errors.ts';
import { type Column, type Columns, readColumns, writeColumns } from './columns.ts';
import { TOKEN_FIELDS, TURN_FIELDS, type TokenFieldName } from '../../rollout/tokenLog.ts';
import { countsOf, type TrajectoryCounts } from '../../rollout/types.ts';
import type { Problem, Reward } from '../../tasks/task.ts';
import { withMissing } from '../pipelines/index.ts';
import { isTree } from '../../grpo/config/tree.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { Sha256 } from '../../model/checkpoint/sha256.ts';
import type { StepInputs } from '../../grpo/types.ts';
import { type Sample, sameIds } from '../../grpo/update/batch.ts';
import type { StepExtras } from '../../grpo/update/stepTokens.ts';

const FORMAT = 'webgrpo-rollouts';
const VERSION = 1;

/** Which step of which run a file contains. */
interface StepName {
  step: number;
  /** Name of the run. */
  run: string;
  /** SHA-256 of the settings that determine the step's numbers; see `settingsHash`. */
  config: string;
}

/** A stored step: its samples with rewards, and the other inputs of the update. */
export interface KeptStep extends StepName, Pick<StepInputs, 'isOwnSize'> {
  samples: Sample[];
  /** Advantages per token that the update used: one float32 array per sample, as long as the sample's response. */
  advantages: Float32Array[];
  extras: Omit<StepExtras, 'advantage'>;
}

/** Names of the values per token that are optional in a file, in the order of their columns. */
const OPTIONAL_VALUES = TURN_FIELDS.filter((name) => name !== 'tokenIds' && name !== 'logProbs').toReversed();
/** True for values per token that are whole numbers, such as weight versions, which are mostly equal for all tokens of a sample. */
const isCount = (name: TokenFieldName): boolean => TOKEN_FIELDS[name].Numbers === Uint32Array;
const columnOf = (name: TokenFieldName): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** Fields of a sample that are stored as JSON, because they are not values per token. */
interface ToldSample {
  messages: Sample['messages'];
  reward: Omit<Reward, 'score' | 'acc'>;
  trajectory: TrajectoryCounts;
  prompt?: Sample['prompt'];
  fork?: Sample['fork'];
  toolRewards?: Sample['toolRewards'];
  fault?: { kind: string; message: string };
}

interface Told extends Pick<StepInputs, 'isOwnSize'> {
  problems: Problem[];
  samples: ToldSample[];
  extras: Pick<StepExtras, 'klCoef' | 'roleBaselines'> & { baselines?: (number | null)[] };
}

/** Returns the bytes of a step's file. Throws InputError if a problem or a sample has values that JSON cannot represent. */
export async function encodeStep(
  { step, run, config }: StepName,
  samples: readonly Sample[],
  { tokens, extras, isOwnSize }: StepInputs,
): Promise<Uint8Array<ArrayBuffer>> {
  const problems = [...new Set(samples.map(({ problem }) => problem))];
  const trajectories = samples.map(({ trajectory }) => trajectory);
  const prompts: Uint32Array[] = [];
  const promptIndex = trajectories.map(({ promptIds }) => {
    const last = prompts.at(-1);
    if (!last || !sameIds(last, promptIds)) prompts.push(promptIds);
    return prompts.length - 1;
  });
  const responses = trajectories.map(({ responseIds }) => responseIds);
  const masks = trajectories.map(({ mask }) => mask);
  const logProbs = trajectories.map((trajectory) => trajectory.logProbs);
  const columns: Columns = new Map<string, Column>([
    ['prompt_offsets', offsetsOf(prompts)],
    ['prompt_ids', tokenColumn(prompts)],
    ['prompt_index', Uint32Array.from(promptIndex)],
    ['response_offsets', offsetsOf(responses)],
    ['response_ids', tokenColumn(responses)],
    ['response_mask', concat(Uint8Array, masks)],
    ['rollout_log_probs', concat(Float32Array, logProbs)],
    ['group', Uint32Array.from(samples, ({ group }) => group)],
    ['problem_index', Uint32Array.from(samples, ({ problem }) => problems.indexOf(problem))],
    ['scores', Float64Array.from(samples, ({ reward }) => reward.score)],
    ['acc', Float64Array.from(samples, ({ reward }) => reward.acc)],
  ]);
  addValues(columns, 'advantages', tokens.advantages, masks, Float32Array);
  for (const name of OPTIONAL_VALUES) {
    const values = trajectories.map((trajectory) => trajectory[name] ?? []);
    if (values.some(({ length }, s) => length !== responses[s].length)) continue;
    if (isCount(name)) addValues(columns, columnOf(name), values, masks, Uint32Array);
    else if (values.some((all) => all.some((value) => value !== 0)))
      columns.set(columnOf(name), concat(Float32Array, values));
  }
  if (extras.oldLogProbs) columns.set('old_log_probs', concat(Float32Array, extras.oldLogProbs));
  if (extras.refLogProbs) columns.set('ref_log_prob', concat(Float32Array, extras.refLogProbs));
  const all = { problems, samples: samples.map(told), extras: toldExtras(extras), ...(isOwnSize && { isOwnSize }) };
  columns.set('json', new TextEncoder().encode(jsonOf(all)));
  const metadata = { format: FORMAT, version: String(VERSION), step: String(step), run, config };
  return writeColumns(columns, metadata);
}

/** Reads a step's file, bit for bit as it was. Throws InputError that names `file` if the file is not from `encodeStep`. */
export async function decodeStep(bytes: Uint8Array, file: string): Promise<KeptStep> {
  const { columns, metadata } = await readColumns(bytes, file);
  if (metadata['format'] !== FORMAT)
    throw new InputError(
      `${file} is a safetensors file, but not one of saved rollouts. Give rollouts/step-N.safetensors of a run.`,
    );
  if (metadata['version'] !== String(VERSION))
    throw new InputError(
      `${file} is of version ${metadata['version']}, but this webgrpo reads version ${VERSION}. Use the webgrpo that wrote it.`,
    );
  try {
    return stepOf(columns, metadata);
  } catch (error) {
    throw new InputError(`${file} is not as webgrpo writes it (${(error as Error).message}). Use another copy of it.`, {
      cause: error,
    });
  }
}

function stepOf(columns: Columns, metadata: Record<string, string>): KeptStep {
  const told = JSON.parse(new TextDecoder().decode(column(columns, 'json'))) as Told;
  const count = told.samples.length;
  const offsets = Array.from(column(columns, 'response_offsets', count + 1));
  const total = offsets[count];
  const promptOffsets = Array.from(column(columns, 'prompt_offsets'));
  const perToken = (name: string) => cutAt(column(columns, name, total), offsets);
  const optional = (name: string) => (columns.has(name) ? perToken(name) : undefined);
  const prompts = cutAt(column(columns, 'prompt_ids', promptOffsets.at(-1)), promptOffsets).map((ids) =>
    Uint32Array.from(ids),
  );
  const promptIndex = column(columns, 'prompt_index', count);
  const problemIndex = column(columns, 'problem_index', count);
  const [group, scores, acc] = ['group', 'scores', 'acc'].map((name) => column(columns, name, count));
  const [ids, masks] = [perToken('response_ids'), perToken('response_mask') as Uint8Array[]];
  const logProbs = perToken('rollout_log_probs') as Float32Array[];
  const read = (name: TokenFieldName) =>
    isCount(name) ? valuesOf(columns, columnOf(name), masks, offsets) : optional(columnOf(name));
  const values = OPTIONAL_VALUES.map((name) => [name, read(name)] as const);
  const samples = told.samples.map(({ messages, reward, trajectory, fault, prompt, fork, toolRewards }, s): Sample => ({
    problem: item(told.problems, problemIndex[s]),
    group: group[s],
    messages,
    reward: { ...withMissing(reward as Reward), score: scores[s], acc: acc[s] },
    ...(prompt && { prompt }),
    ...(fork && { fork }),
    ...(toolRewards && { toolRewards }),
    ...(fault && { fault: new UserCodeError(fault.kind, fault.message) }),
    trajectory: {
      promptIds: item(prompts, promptIndex[s]),
      responseIds: Uint32Array.from(ids[s]),
      mask: masks[s],
      logProbs: logProbs[s],
      logMass: new Float32Array(masks[s].length),
      ...Object.fromEntries(values.flatMap(([name, all]) => (all ? [[name, all[s]]] : []))),
      ...trajectory,
    },
  }));
  const [oldLogProbs, refLogProbs] = [optional('old_log_probs'), optional('ref_log_prob')];
  const { baselines, ...extras } = told.extras;
  const { step, run, config } = metadata;
  if (!/^\d+$/.test(step)) throw new Error(`its step is "${step}"`);
  return {
    ...{ step: Number(step), run, config, samples },
    ...(told.isOwnSize && { isOwnSize: true }),
    advantages: valuesOf(columns, 'advantages', masks, offsets) as Float32Array[],
    extras: {
      ...extras,
      ...(baselines && { baselines: baselines.map((value) => value ?? NaN) }),
      ...(oldLogProbs && { oldLogProbs }),
      ...(refLogProbs && { refLogProbs }),
    },
  };
}

const told = ({ messages, reward, trajectory, prompt, fork, toolRewards, fault }: Sample): ToldSample => {
  const { score: _, acc: __, ...rest } = reward;
  return {
    messages,
    reward: rest,
    trajectory: countsOf(trajectory),
    ...(prompt && { prompt }),
    ...(fork && { fork }),
    ...(toolRewards && { toolRewards }),
    ...(fault && { fault: { kind: fault.kind, message: fault.message } }),
  };
};

const toldExtras = ({ klCoef, roleBaselines, baselines }: StepExtras): Told['extras'] => ({
  ...(klCoef !== undefined && { klCoef }),
  ...(roleBaselines && { roleBaselines }),
  ...(baselines && { baselines: Array.from(baselines) }),
});

function jsonOf(all: Told): string {
  try {
    return JSON.stringify(all);
  } catch (error) {
    const reason = (error as Error).message.split('\n')[0];
    throw new InputError(
      `trainer.keepRollouts keeps problems and rewards as JSON, which cannot hold those of this step (${reason}). Leave such values out, or set it to false.`,
    );
  }
}

/**
 * Adds a column of values per token. If in every sample all tokens with mask 1 have the same value and the others 0, as is usual, the
 * column has only one number per sample.
 */
function addValues(
  columns: Columns,
  name: string,
  values: readonly ArrayLike<number>[],
  masks: readonly ArrayLike<number>[],
  Numbers: typeof Float32Array | typeof Uint32Array,
): void {
  const firsts = masks.map((mask, s) => values[s][Array.prototype.indexOf.call(mask, 1)] ?? 0);
  const isOne = values.every((all, s) =>
    Array.prototype.every.call(all, (value, t) => Object.is(value, masks[s][t] ? firsts[s] : 0)),
  );
  if (isOne) columns.set(name, Numbers.from(firsts));
  else columns.set(`token_${name}`, concat<Column>(Numbers, values));
}

/** Reads a column of `addValues` and returns one array per sample; undefined if the file has no such column. */
function valuesOf(columns: Columns, name: string, masks: Uint8Array[], offsets: number[]): Column[] | undefined {
  if (columns.has(`token_${name}`)) return cutAt(column(columns, `token_${name}`, offsets.at(-1)), offsets);
  if (!columns.has(name)) return undefined;
  const each = column(columns, name, masks.length);
  const Numbers = each.constructor as Float32ArrayConstructor;
  return masks.map((mask, s) => Numbers.from(mask, (m) => (m ? each[s] : 0)));
}

/** Returns a column. Throws if it is missing or does not have the given length. */
function column(columns: Columns, name: string, length?: number): Column {
  const data = columns.get(name);
  if (!data) throw new Error(`it has no "${name}"`);
  if (length !== undefined && data.length !== length)
    throw new Error(`"${name}" has ${data.length} values, not ${length}`);
  return data;
}

function item<T>(items: readonly T[], index: number): T {
  if (index < items.length) return items[index];
  throw new Error(`it points at item ${index} of ${items.length}`);
}

/** Splits a column at the offsets. Returns copies. */
function cutAt<T extends Column>(data: T, offsets: readonly number[]): T[] {
  if (offsets[0] !== 0 || offsets.some((offset, i) => i > 0 && offset < offsets[i - 1]))
    throw new Error('its offsets do not ascend from 0');
  return offsets.slice(1).map((end, i) => data.slice(offsets[i], end) as T);
}

function offsetsOf(parts: readonly ArrayLike<unknown>[]): Uint32Array {
  const offsets = new Uint32Array(parts.length + 1);
  parts.forEach(({ length }, i) => (offsets[i + 1] = offsets[i] + length));
  return offsets;
}

/** Concatenates token ids, as 16-bit numbers if all are small enough. */
function tokenColumn(parts: readonly Uint32Array[]): Column {
  const isShort = parts.every((ids) => ids.every((id) => id < 2 ** 16));
  return concat<Column>(isShort ? Uint16Array : Uint32Array, parts);
}

/**
 * Returns the SHA-256 of the settings that determine a step's numbers. Settings of `trainer`, such as the number of steps, are not
 * included.
 */
export function settingsHash({ seed, task, data, rollout, actor, algorithm, reward, model }: TrainConfig): string {
  const inOrder = (_: string, value: unknown) =>
    isTree(value) ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))) : value;
  const text = JSON.stringify({ seed, task, data, rollout, actor, algorithm, reward, model }, inOrder);
  return new Sha256().update(new TextEncoder().encode(text)).hex();
}
