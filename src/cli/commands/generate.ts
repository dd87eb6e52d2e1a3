/** `webgrpo generate`: prints a checkpoint's answer, or chats with it. Text is printed as its tokens are sampled. */

import { createInterface } from 'node:readline';
import { randomKey } from '../../grpo/generate/samples.ts';
import { InputError } from '../../errors.ts';
import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { lostRoles, namedRole } from '../../model/tokenizer/lostText.ts';
import { modelTokenizer } from '../../model/tokenizer/modelTokenizer.ts';
import { type ParsedArgs, refuseFlags } from '../args.ts';
import { type AdaptedModel, loadWithAdapter } from '../run/checkpoints.ts';
import { type Command, JSON_FLAG, type Output } from '../command.ts';
import { IMPORT_FLAG } from '../importModule.ts';
import { type Answer, Conversation } from '../generate/conversation.ts';
import { currentIo } from '../process/io.ts';
import { say } from '../run/progress.ts';
import { openAnswering, TaskAnswers } from '../generate/taskAnswers.ts';
import { integerFlag, SAMPLING_FLAGS, samplingOf } from '../generate/samplingFlags.ts';
import { openEngine } from '../run/session.ts';
import { computeDtype, COMPUTE_DTYPE_FLAG, packedFormat } from './score.ts';
import { plural } from '../../ui/format.ts';

/** Default context length of a chat in tokens; a flag or the model can set fewer. */
const CHAT_CONTEXT = 2048;
/** Maximum number of tokens that one prefill pass takes from a prompt. */
const BATCHED_TOKENS = 512;

export const generate: Command = {
  summary: 'one answer of a checkpoint, or a chat with it, streamed',
  usage: [
    'generate --model checkpoints/gsm8k-tool --prompt "Tom has 3 apples and buys 4. How many has he?"',
    'generate --model checkpoints/gsm8k-tool --prompt "Tom has 3 apples." --temperature 0 --stop "####" --stop "."',
    'generate --model runs/gsm8k-tool --chat',
    'generate --model DIR --chat --system "You answer in one sentence."',
  ],
  reads: [],
  flags: {
    ...JSON_FLAG,
    ...IMPORT_FLAG,
    model: { value: 'PATH', help: 'checkpoint or run folder, or .gguf file; a run answers with the tools of its task' },
    config: { value: 'FILE', help: "answer with the tools, prompt and limits of a training config's task" },
    adapter: { value: 'FOLDER', help: 'LoRA adapter (PEFT folder or run folder) over the model' },
    prompt: { value: 'TEXT', help: "the user's message" },
    system: { value: 'TEXT', help: 'a system message before it' },
    chat: { help: "several turns: the user's messages are lines of standard input; /exit ends it" },
    context: {
      value: 'N',
      help: `tokens of a complete chat (default ${CHAT_CONTEXT} or, with a task, 4 samples; at most the model's positions)`,
    },
    raw: {
      help: 'continue the text itself, after the start token of the tokenizer if it has one, without the chat template',
    },
    ...SAMPLING_FLAGS,
    quantization: { value: 'FORMAT', help: 'keep weights as float16, int8 or int4' },
    dtype: COMPUTE_DTYPE_FLAG,
  },
  async run(args, io) {
    const { flags } = args;
    const { model: path, prompt, adapter } = flags;
    if (typeof path !== 'string' && flags['config'] === undefined)
      throw new InputError('--model is missing. Give --model FOLDER, or --config FILE.');
    if (flags['chat'] && flags['raw'])
      throw new InputError('A chat needs the chat template. Leave out --raw or --chat.');
    if (!flags['chat']) refuseFlags(flags, ['context'], 'without --chat');
    const lines = flags['chat'] ? new Lines() : undefined;
    if (typeof prompt !== 'string' && !lines)
      throw new InputError('--prompt is missing. Give --prompt TEXT, or --chat.');
    const seed = integerFlag(flags, 'seed', 1, [0, 2 ** 31]);
    const onText = (text: string) => void (io.json || currentIo().stdout.write(text));
    const answering = await openAnswering(flags, args.lists);
    if (answering) {
      const answers = await TaskAnswers.open(answering, flags, seed, onText);
      try {
        const turns = await askAll(answers, typeof prompt === 'string' ? prompt : undefined, lines);
        io.result(lines ? { turns } : turns[0]);
      } finally {
        answers.close();
        lines?.close();
      }
      return;
    }
    const model = await loadWithAdapter(String(path), typeof adapter === 'string' ? adapter : undefined);
    // The engine's sizes depend on the length of the prompt, so the prompt is encoded first.
    const tokenizer = modelTokenizer(model);
    const { vocabSize } = model.config;
    if (tokenizer.endNote && !flags['raw']) say(tokenizer.endNote);
    const sampling = samplingOf(args, { eosTokenIds: tokenizer.eosTokenIds, vocabSize });
    const question = typeof prompt === 'string' ? prompt : await lines?.next();
    if (question === undefined) {
      lines?.close();
      io.result({ turns: [] });
      return;
    }
    const promptIds = encode(tokenizer, flags, question);
    const contextLength = contextOf(flags, promptIds.length, sampling.maxNewTokens, model);
    const engine = await open(model, flags, promptIds.length, contextLength);
    const key = randomKey(seed, 0, 0, 0);
    const conversation = new Conversation({
      engine: engine.rollout,
      tokenizer,
      promptIds,
      contextLength,
      key,
      sampling,
      onText,
    });
    try {
      const answers = await converse(conversation, lines, io);
      io.result(lines ? { turns: answers } : answers[0]);
    } finally {
      conversation.close();
      lines?.close();
      engine.destroy();
    }
  },
};

/** Answers the prompt, then each line of input, with the task's prompt format and tools. */
async function askAll(answers: TaskAnswers, prompt: string | undefined, lines: Lines | undefined) {
  const turns: Answer[] = [];
  for (let question = prompt ?? (await lines?.next()); question !== undefined; question = await lines?.next()) {
    turns.push(await answers.ask(question));
    sayAnswer(turns.at(-1)!);
  }
  return turns;
}

function sayAnswer({ tokenIds, tokensPerSecond, stopReason }: Answer): void {
  say(`${plural(tokenIds.length, 'token')}, ${tokensPerSecond.toFixed(1)} tokens/s, ${stopReason}`);
}

/** Prints the answer to each message of the chat, until standard input ends or the context is full. Returns all answers. */
async function converse(conversation: Conversation, lines: Lines | undefined, io: Output): Promise<Answer[]> {
  const answers: Answer[] = [];
  for (;;) {
    const answer = await conversation.answer();
    answers.push(answer);
    io.text('');
    sayAnswer(answer);
    const next = await lines?.next();
    if (next === undefined) return answers;
    if (conversation.say(next)) continue;
    say(`The chat has ${plural(conversation.room, 'token')} left, too few for that message. Raise --context.`);
    return answers;
  }
}

function encode(tokenizer: ChatTokenizer, flags: ParsedArgs['flags'], prompt: string): Uint32Array {
  const { system, raw } = flags;
  if (raw && typeof system === 'string')
    throw new InputError(
      '--raw gives the model the prompt alone, without a system message. Leave out --system or --raw.',
    );
  if (raw) return Uint32Array.from(tokenizer.withStart(tokenizer.encode(prompt)));
  const before = typeof system === 'string' ? [{ role: 'system', content: system }] : [];
  const messages = [...before, { role: 'user', content: prompt }];
  const lost = lostRoles(messages, (marked) => tokenizer.applyChatTemplate(marked)).map(namedRole);
  if (lost.length > 0)
    say(`The chat template leaves out ${lost.join(' and ')}, so the model does not read what you wrote there.`);
  return tokenizer.encodeChat(messages);
}

/** Returns the context length of the engine: tokens of the prompt and the answers. Throws InputError if the model has fewer positions. */
function contextOf(
  flags: ParsedArgs['flags'],
  promptLength: number,
  maxNewTokens: number,
  { config: { maxPositionEmbeddings: positions } }: AdaptedModel,
): number {
  const least = promptLength + (flags['chat'] ? 1 : maxNewTokens);
  if (least > positions) {
    throw new InputError(
      `The prompt of ${promptLength} tokens and ${least - promptLength} new ones exceed the model's ` +
        `${positions} positions. Lower --max-new-tokens or shorten the prompt.`,
    );
  }
  if (!flags['chat']) return least;
  return integerFlag(flags, 'context', Math.min(positions, Math.max(CHAT_CONTEXT, least)), [least, positions]);
}

function open(model: AdaptedModel, flags: ParsedArgs['flags'], promptLength: number, contextLength: number) {
  const { quantization, dtype } = flags;
  return openEngine(model, {
    engine: 'wgsl',
    use: 'generate',
    ...(quantization !== undefined && { weightFormat: packedFormat(quantization) }),
    dtype: computeDtype(dtype),
    maxTokenLen: contextLength,
    maxPositions: contextLength,
    rollout: {
      maxNumSeqs: 1,
      slotCapacity: contextLength - promptLength,
      maxPrompts: 1,
      maxPromptLength: promptLength,
      maxBatchedTokens: Math.min(BATCHED_TOKENS, Math.max(256, contextLength)),
    },
  });
}

/** Reads non-empty lines of standard input. Shows the prompt "> " if standard input is a terminal. */
class Lines {
  readonly #reader = createInterface({ input: currentIo().stdin });
  readonly #lines = this.#reader[Symbol.asyncIterator]();

  /** Returns the next line; undefined at the end of the input or at the line /exit. */
  async next(): Promise<string | undefined> {
    const { stdin, stderr } = currentIo();
    for (;;) {
      if (stdin.isTTY) stderr.write('> ');
      const { value, done } = await this.#lines.next();
      if (done || value.trim() === '/exit') return undefined;
      if (value.trim() !== '') return value;
    }
  }

  close(): void {
    this.#reader.close();
  }
}
