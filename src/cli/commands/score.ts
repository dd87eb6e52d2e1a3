/** `webgrpo score`: prints the log-prob of each next token of given token sequences, for comparison with other implementations. */

import { PACKED_FORMATS, type PackedFormat } from '../../gpu/packedFormat.ts';
import { isTree, show } from '../../grpo/config/tree.ts';
import { withTokenizer } from '../../model/checkpoint/checkpoint.ts';
import type { ModelConfig } from '../../model/config.ts';
import { InputError } from '../../errors.ts';
import { packGroups } from '../../model/packing.ts';
import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { lostRoles, namedRole, OTHER_TEMPLATE } from '../../model/tokenizer/lostText.ts';
import { parseAsWritten } from '../../model/tokenizer/pythonText.ts';
import { modelTokenizer } from '../../model/tokenizer/modelTokenizer.ts';
import { parseJson } from '../../rollout/tools/call.ts';
import { dtypeNote } from '../../workers/engineSpec.ts';
import { createDeviceEngine, type DeviceEngine, type DeviceSpec, withOfferedDtype } from '../../workers/localEngine.ts';
import { type PlanItem, planLines, type Sizes } from '../../workers/memoryPlan.ts';
import { openWithAdapter } from '../run/checkpoints.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { installDawn } from '../dawn.ts';
import { tuningStore } from '../diskStore.ts';
import { readJsonFile } from '../files.ts';
import { currentIo } from '../process/io.ts';
import { LOADING, Progress, say, whileWorking } from '../run/progress.ts';
import { COMPILING } from '../run/plan.ts';
import { plural } from '../../ui/format.ts';

/** Maximum number of tokens per forward pass, unless one sequence is longer. */
const TOKENS = 1024;

/** The `--dtype` flag of commands that run a model. */
export const COMPUTE_DTYPE_FLAG = {
  value: 'DTYPE',
  help: 'compute on float16 where the adapter can (default float32)',
};

export const score: Command = {
  summary: 'next-token log-probs of token sequences or conversations, as JSON',
  usage: [
    'score --model checkpoints/gsm8k-tool --tokens tokens.json',
    'score --model checkpoints/gsm8k-tool --chat conversations.json',
  ],
  reads: [],
  flags: {
    ...JSON_FLAG,
    model: { value: 'PATH', help: 'checkpoint or run folder, or .gguf file; only --chat needs the tokenizer' },
    adapter: { value: 'FOLDER', help: 'LoRA adapter (PEFT folder or run folder) over the model' },
    quantization: { value: 'FORMAT', help: 'weights in float16, int8 or int4; says their error against float32' },
    dtype: { ...COMPUTE_DTYPE_FLAG, help: `${COMPUTE_DTYPE_FLAG.help}; says the error against float32` },
    tokens: { value: 'FILE', help: 'JSON: an array of arrays of token ids' },
    chat: {
      value: 'FILE',
      help: 'JSON: an array of conversations, each a list of messages or { messages, tools }, in the chat template',
    },
  },
  details: () =>
    'With --tokens, prints an array of numbers for each sequence: entry t is the log-prob of token t + 1 after the tokens up to t.\n' +
    'With --chat, prints { "ids", "logprobs" } for each conversation, without a generation prompt at its end. Entry t of logprobs is the\n' +
    "log-prob of token t after all earlier ones; the first entry is null, as in vLLM's prompt_logprobs.\n" +
    'Names of control tokens in user and tool messages stay plain text, as in training; transformers reads them as tokens.\n' +
    'Log-probs are natural logarithms, at temperature 1.',
  async run({ flags: { model: path, adapter: adapterPath, tokens, chat, quantization, dtype } }) {
    if (typeof path !== 'string') throw new InputError('--model is missing. Give --model FOLDER.');
    const file = chat ?? tokens;
    if (typeof file !== 'string')
      throw new InputError('--tokens and --chat are missing. Give --tokens FILE or --chat FILE.');
    if (chat !== undefined && tokens !== undefined)
      throw new InputError('Both --tokens and --chat are given. Leave one out.');
    const weightFormat = quantization === undefined ? undefined : packedFormat(quantization);
    const coarse = { ...(weightFormat && { weightFormat }), dtype: computeDtype(dtype) };
    const { base, model, adapter } = await openWithAdapter(
      path,
      typeof adapterPath === 'string' ? adapterPath : undefined,
    );
    const json = chat === undefined ? await readJsonFile(file) : await readJsonFile(file, parseAsWritten);
    const ids = chat === undefined ? json : conversationIds(json, modelTokenizer(withTokenizer(base, model)), file);
    const sequences = readSequences(ids, model.config, file);
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
    // Prints the log-probs as JSON with or without --json, because other programs read them.
    const chats = () => sequences.map((ids, s) => ({ ids, logprobs: [null, ...scores[s]] }));
    currentIo().stdout.write(`${JSON.stringify(chat === undefined ? scores : chats())}\n`);
  },
};

/**
 * Returns the length of the longest sequence. Avoids Math.max(...lengths), which fails if there are more lengths than a call can have
 * arguments.
 */
export const longest = (sequences: readonly number[][]): number =>
  sequences.reduce((most, { length }) => Math.max(most, length), 0);

/** Returns the quantization format of this name. Throws InputError. */
export function packedFormat(name: string | boolean): PackedFormat {
  const format = PACKED_FORMATS.find((known) => known === name);
  if (format) return format;
  throw new InputError(`--quantization is "${name}"; allowed: ${PACKED_FORMATS.join(', ')}.`);
}

/** Converts the flag's value to the `dtype` of an engine spec; undefined = float32. Throws InputError. */
export function computeDtype(name: string | boolean | undefined): 'float16' | undefined {
  if (name === undefined || name === 'float32') return undefined;
  if (name === 'float16') return name;
  throw new InputError(`--dtype is "${name}"; allowed: float32, float16.`);
}

async function scoreWith(spec: DeviceSpec, sequences: number[][], tell: boolean): Promise<number[][]> {
  const onPlan = (_: Sizes, items: PlanItem[]) => {
    if (tell) for (const line of planLines(items)) say(line);
    say(COMPILING);
  };
  const tuning = async () => tuningStore();
  const engine = await whileWorking(LOADING, () => createDeviceEngine(spec, { tuning, onPlan }));
  try {
    const { description, vendor, isSoftware } = engine.adapter;
    if (tell) say(`adapter: ${description || vendor}${isSoftware ? ' (software: correct, but slow)' : ''}`);
    return await whileWorking('scoring', (show) => scoreSequences(engine, sequences, spec.maxTokenLen, show));
  } finally {
    engine.destroy();
  }
}

/** Returns a line about the errors of `scores` (log-probs of quantized or float16 weights) against `exact` (float32), in nats per token. */
function errorLine(scores: number[][], exact: number[][]): string {
  const errors = scores.flatMap((row, s) => row.map((logp, t) => Math.abs(logp - exact[s][t])));
  const mean = errors.reduce((a, b) => a + b, 0) / errors.length;
  const largest = errors.reduce((a, b) => Math.max(a, b), 0);
  return `mean error of a log-prob ${mean.toExponential(2)} nats, largest ${largest.toExponential(2)}, ${plural(errors.length, 'token')}`;
}

/** Returns one array of log-probs per sequence. Entry t is log p(token t + 1 | tokens up to t), natural logarithm, temperature 1. */
export async function scoreSequences(
  { model }: { model: Pick<DeviceEngine['model'], 'logProbs'> },
  sequences: number[][],
  maxTokenLen: number,
  show: (text: string) => void,
): Promise<number[][]> {
  const groups = sequences.map(([first, ...rest]) => {
    const samples = [{ tokens: Uint32Array.from(rest), mask: new Uint8Array(rest.length).fill(1) }];
    return { prompt: Uint32Array.of(first), samples };
  });
  const scores = sequences.map((ids) => new Array<number>(ids.length - 1));
  const passes = packGroups(groups, maxTokenLen);
  const progress = new Progress();
  for (const [done, { batch, entryGroup, entryPosition }] of passes.entries()) {
    if (done > 0) show(`scoring: ${progress.text(done, passes.length, 'passes')}`);
    const { logProbs } = await model.logProbs(batch, { temperature: 1 });
    logProbs.forEach((value, e) => (scores[entryGroup[e]][entryPosition[e]] = value));
  }
  return scores;
}

const CONVERSATIONS =
  'a JSON array of conversations, each a list of { role, content } or an object with such "messages" and, if any, "tools"';

/**
 * Returns the token ids of each conversation after the chat template. Arguments of a tool call that are JSON text are parsed before the
 * template sees them, as vLLM does. Reports messages that the template drops. Throws InputError that names the conversation.
 */
export function conversationIds(json: unknown, tokenizer: ChatTokenizer, file: string, note = say): number[][] {
  const fail = (where: string): never => {
    throw new InputError(`${file} ${where}. Give ${CONVERSATIONS}.`);
  };
  if (!Array.isArray(json) || json.length === 0) return fail('holds no list of conversations');
  const lost = new Set<string>();
  const ids = (json as unknown[]).map((given, c) => {
    const { messages, tools = [] } = isTree(given) ? given : { messages: given };
    if (!Array.isArray(messages) || messages.length === 0) return fail(`has no messages in conversation ${c}`);
    if (!Array.isArray(tools)) return fail(`has "tools" in conversation ${c} that are not a list`);
    const read = (messages as unknown[]).map(
      (message, m) => scoredMessage(message) ?? fail(`has ${show(message)} as message ${m} of conversation ${c}`),
    );
    const options = { tools: tools as unknown[], addGenerationPrompt: false };
    for (const role of lostRoles(read, (marked) => tokenizer.applyChatTemplate(marked, options))) lost.add(role);
    return [...tokenizer.encodeChat(read, options)];
  });
  if (lost.size > 0)
    note(
      `The chat template leaves out ${[...lost].map(namedRole).join(' and ')}: they are not scored. ${OTHER_TEMPLATE}`,
    );
  return ids;
}

/**
 * Returns a message in the form that chat templates expect; undefined if the value is not a message. Content can be a string, a list of
 * text parts, or null if the message has tool calls.
 */
function scoredMessage(message: unknown) {
  if (!isTree(message) || typeof message['role'] !== 'string') return undefined;
  const { role, content, tool_calls: calls, ...rest } = message;
  const text = Array.isArray(content)
    ? content.map((part) => (isTree(part) ? part['text'] : undefined))
    : [content ?? ''];
  if (!text.every((part) => typeof part === 'string') || (content == null && !Array.isArray(calls))) return undefined;
  return {
    role,
    content: text.join(''),
    ...rest,
    ...(Array.isArray(calls) && { tool_calls: calls.map(withArguments) }),
  };
}

function withArguments(call: unknown): unknown {
  if (!isTree(call) || !isTree(call['function'])) return call;
  const { arguments: given } = call['function'];
  const read = typeof given === 'string' ? (parseJson(given, parseAsWritten) ?? given) : given;
  return { ...call, function: { ...call['function'], arguments: read } };
}

/** Checks that the JSON is a list of token id lists. Throws InputError that names the first invalid sequence and token. */
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
