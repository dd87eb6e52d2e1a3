/** Trains the tokenizer of the checkpoint that is shipped for gsm8k-tool: about 512 entries, from the task's own text. */

import { PLAIN_TEMPLATE } from '../../model/tokenizer/template.ts';
import { type BpeOptions, trainBpe, trainBpeInPieces } from './trainBpe.ts';
import { keyedRng } from '../../tasks/random.ts';
import { trainProblem } from '../../tasks/gsm8k/task.ts';
import type { Gsm8kProblem } from '../../tasks/gsm8k/task.ts';
import { calculatorCall, demonstration } from './demonstrations.ts';

const SPECIAL_TOKENS = [
  { content: '<|endoftext|>', special: true },
  { content: '<|im_start|>', special: true },
  { content: '<|im_end|>', special: true },
  // Tool tokens are not special, as in Qwen's tokenizer, because the parser of tool calls must find them in decoded text.
  { content: '<tool_call>', special: false },
  { content: '</tool_call>', special: false },
  { content: '<tool_response>', special: false },
  { content: '</tool_response>', special: false },
];

/** The two files of a tokenizer in Hugging Face format. */
export interface TokenizerFiles {
  /** Content of tokenizer.json. */
  tokenizer: Record<string, unknown>;
  /** Content of tokenizer_config.json, with the chat template. */
  config: Record<string, unknown>;
}

/** Builds the tokenizer of the generated task from 4000 problems with correct demonstrations. Takes about a second. */
export function buildGsm8kTokenizer(vocabSize = 512): TokenizerFiles {
  const problems = Array.from({ length: 4000 }, (_, i) => trainProblem(i, 0));
  return buildTokenizer(problems, vocabSize);
}

/** Builds a tokenizer from any GSM8K problems, for instance those of GSM8K's own training file. */
export function buildTokenizer(problems: Gsm8kProblem[], vocabSize: number): TokenizerFiles {
  return tokenizerOf(
    problems.flatMap((problem) => conversationText(problem)),
    vocabSize,
  );
}

/**
 * Trains a byte-level BPE tokenizer with ChatML and tool tokens on any texts, such as message contents and 'system\n', 'user\n',
 * 'assistant\n'. The result can be passed to createLocalEngine as tokenizerJson and tokenizerConfigJson.
 * @param vocabSize total number of entries; at least 263, because 256 are bytes and 7 are special
 * @param wordShare largest fraction of the other entries that can be complete words
 */
export function tokenizerOf(texts: string[], vocabSize: number, wordShare = 0.9): TokenizerFiles {
  return { tokenizer: trainBpe(texts, bpeOptions(vocabSize, wordShare)), config: tokenizerConfig() };
}

/** Like `tokenizerOf`, but in short pieces of work between which other tasks run. */
export async function tokenizerInPieces(
  texts: string[],
  vocabSize: number,
  wordShare: number,
): Promise<TokenizerFiles> {
  return { tokenizer: await trainBpeInPieces(texts, bpeOptions(vocabSize, wordShare)), config: tokenizerConfig() };
}

function bpeOptions(vocabSize: number, wordShare: number): BpeOptions {
  const room = vocabSize - 256 - SPECIAL_TOKENS.length;
  return { vocabSize, maxWords: Math.floor(room * wordShare), specialTokens: SPECIAL_TOKENS };
}

/** Returns the texts of a conversation, divided where the chat template divides them, so that no pre-token spans two of them. */
function conversationText(problem: Gsm8kProblem): string[] {
  const trace = demonstration(problem, keyedRng('tokenizer'));
  const calls = trace.calls.flatMap(({ expression, result }) => [calculatorCall(expression), result]);
  return ['system\n', 'user\n', 'assistant\n', ...problem.messages.map((m) => m.content), ...calls, trace.final];
}

function tokenizerConfig(): Record<string, unknown> {
  return {
    tokenizer_class: 'PreTrainedTokenizerFast',
    eos_token: '<|im_end|>',
    pad_token: '<|endoftext|>',
    model_max_length: 1024,
    clean_up_tokenization_spaces: false,
    chat_template: PLAIN_TEMPLATE,
  };
}
