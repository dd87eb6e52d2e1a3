/** `webgrpo score`: prints next-token log-probs of token sequences, to compare with other implementations. */

import { PACKED_FORMATS, type PackedFormat } from '../../gpu/packedFormat.ts';
import { show } from '../../grpo/config/tree.ts';
import type { ModelConfig } from '../../model/config.ts';
import { InputError } from '../../errors.ts';
import { packGroups } from '../../model/packing.ts';
import { dtypeNote } from '../../workers/engineSpec.ts';
import { createDeviceEngine, type DeviceEngine, type DeviceSpec, withOfferedDtype } from '../../workers/localEngine.ts';
import { planLines, planMemory } from '../../workers/memoryPlan.ts';
import { findAdapter, openModel, readAdapter } from '../run/checkpoints.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { adapterBindingBytes, installDawn } from '../dawn.ts';
import { tuningStore } from '../diskStore.ts';
import { readJsonFile } from '../files.ts';
import { currentIo } from '../process/io.ts';
import { say } from '../run/progress.ts';
import { COMPILING } from '../run/session.ts';

/** Tokens of a pass, unless a sequence is longer. */
const TOKENS = 1024;

/** The `--dtype` flag of commands that compute. */
export const COMPUTE_DTYPE_FLAG = {
  value: 'DTYPE',
  help: 'compute on float16 where the adapter can (default float32)',
};

export const score: Command = {
  summary: 'next-token log-probs of token sequences, as JSON',
  usage: ['score --model checkpoints/gsm8k-tool --tokens tokens.json'],
  flags: {
    ...JSON_FLAG,
    model: { value: 'PATH', help: 'checkpoint or run folder, or .gguf file; the tokenizer is not needed' },
    adapter: { value: 'FOLDER', help: 'LoRA adapter (PEFT folder or run folder) over the model' },
    quantization: { value: 'FORMAT', help: 'weights in float16, int8 or int4; says their error against float32' },
    dtype: { ...COMPUTE_DTYPE_FLAG, help: `${COMPUTE_DTYPE_FLAG.help}; says the error against float32` },
    tokens: { value: 'FILE', help: 'JSON: an array of arrays of token ids' },
  },
  async run({ flags: { model: path, adapter: adapterPath, tokens, quantization, dtype } }) {
    if (typeof path !== 'string') throw new InputError('--model is missing. Give --model FOLDER.');
    if (typeof tokens !== 'string') throw new InputError('--tokens is missing. Give --tokens FILE.');
    const weightFormat = quantization === undefined ? undefined : packedFormat(quantization);
    const coarse = { ...(weightFormat && { weightFormat }), dtype: computeDtype(dtype) };
    const { base, folder } = await findAdapter(path, typeof adapterPath === 'string' ? adapterPath : undefined);
    const { model } = await openModel(base);
    const adapter = folder === undefined ? undefined : await readAdapter(folder, model.config);
    const sequences = readSequences(await readJsonFile(tokens), model.config, tokens);
    await installDawn();
    const maxPositions = longest(sequences);
    const maxTokenLen = Math.max(TOKENS, maxPositions);
    const spec: DeviceSpec = {
      ...model,
      engine: 'wgsl',
      maxTokenLen,
      maxPositions,
      use: 'score',
      ...(adapter && { lora: adapter.lora, adapter: adapter.tensors }),
    };
    const offered = await withOfferedDtype({ ...spec, ...coarse });
    const note = dtypeNote(coarse, offered);
    if (note) say(note);
    const { weightFormat: format, dtype: used } = offered;
    const exact = (format ?? used) && (await scoreWith(spec, sequences, false));
    const scores = await scoreWith(offered, sequences, true);
    const what = [format && `${format} weights`, used && `dtype ${used}`];
    if (exact) say(`${what.filter(Boolean).join(', ')} against float32: ${errorLine(scores, exact)}`);
    // Prints only the log-probs, with or without --json, because this output is for programs.
    currentIo().stdout.write(`${JSON.stringify(scores)}\n`);
  },
};

/** Returns the length of the longest sequence. Math.max(...) would fail for many sequences, because each is an argument. */
export const longest = (sequences: readonly number[][]): number =>
  sequences.reduce((most, { length }) => Math.max(most, length), 0);

/** Returns a format by its name. Throws InputError. */
export function packedFormat(name: string | boolean): PackedFormat {
  const format = PACKED_FORMATS.find((known) => known === name);
  if (format) return format;
  throw new InputError(`--quantization is "${name}"; allowed: ${PACKED_FORMATS.join(', ')}.`);
}

/** Returns the `dtype` of an engine spec for the flag; undefined = float32. Throws InputError. */
export function computeDtype(name: string | boolean | undefined): 'float16' | undefined {
  if (name === undefined || name === 'float32') return undefined;
  if (name === 'float16') return name;
  throw new InputError(`--dtype is "${name}"; allowed: float32, float16.`);
}

async function scoreWith(spec: DeviceSpec, sequences: number[][], tell: boolean): Promise<number[][]> {
  if (tell)
    for (const line of planLines(planMemory({ ...spec, maxArenaBytes: await adapterBindingBytes() }))) say(line);
  say(COMPILING);
  const engine = await createDeviceEngine(spec, { tuning: async () => tuningStore() });
  try {
    const { description, vendor, isSoftware } = engine.adapter;
    if (tell) say(`adapter: ${description || vendor}${isSoftware ? ' (software: correct, but slow)' : ''}`);
    return await scoreSequences(engine, sequences, spec.maxTokenLen);
  } finally {
    engine.destroy();
  }
}

/** Returns a line with the differences of log-probs, in nats per token. */
function errorLine(scores: number[][], exact: number[][]): string {
  const errors = scores.flatMap((row, s) => row.map((logp, t) => Math.abs(logp - exact[s][t])));
  const mean = errors.reduce((a, b) => a + b, 0) / errors.length;
  const largest = errors.reduce((a, b) => Math.max(a, b), 0);
  return `mean error of a log-prob ${mean.toExponential(2)} nats, largest ${largest.toExponential(2)}, ${errors.length} tokens`;
}

/** Returns one array per sequence. Entry t is log p(token t + 1 | tokens up to t), natural log, temperature 1. */
async function scoreSequences(
  { model }: DeviceEngine,
  sequences: number[][],
  maxTokenLen: number,
): Promise<number[][]> {
  const groups = sequences.map(([first, ...rest]) => {
    const samples = [{ tokens: Uint32Array.from(rest), mask: new Uint8Array(rest.length).fill(1) }];
    return { prompt: Uint32Array.of(first), samples };
  });
  const scores = sequences.map((ids) => new Array<number>(ids.length - 1));
  for (const { batch, entryGroup, entryPosition } of packGroups(groups, maxTokenLen)) {
    const { logProbs } = await model.logProbs(batch, { temperature: 1 });
    logProbs.forEach((value, e) => (scores[entryGroup[e]][entryPosition[e]] = value));
  }
  return scores;
}

/** Validates token sequences. Throws InputError that names the first invalid sequence and token. */
export function readSequences(json: unknown, { vocabSize, maxPositionEmbeddings }: ModelConfig, file: string) {
  const fail = (what: string): never => {
    throw new InputError(`${file} ${what}`);
  };
  if (!Array.isArray(json) || json.length === 0 || !json.every(Array.isArray)) {
    return fail('must hold a JSON array of arrays of token ids, such as [[1, 5, 2]].');
  }
  for (const [s, ids] of (json as unknown[][]).entries()) {
    if (ids.length === 0) fail(`has no tokens in sequence ${s}. Every sequence needs at least one.`);
    if (ids.length > maxPositionEmbeddings)
      fail(`has ${ids.length} tokens in sequence ${s}, but the model has ${maxPositionEmbeddings} positions.`);
    const bad = ids.findIndex((id) => !Number.isInteger(id) || (id as number) < 0 || (id as number) >= vocabSize);
    if (bad >= 0)
      fail(`has ${show(ids[bad])} as token ${bad} of sequence ${s}; allowed: integers from 0 to ${vocabSize - 1}.`);
  }
  return json as number[][];
}
