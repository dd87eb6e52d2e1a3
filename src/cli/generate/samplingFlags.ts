/** Command-line flags for sampling parameters, with vLLM's names. */

import { MAX_BIASES } from '../../gpu/ops/adjustWidths.ts';
import { InputError } from '../../errors.ts';
import { MAX_STOP_STRINGS } from '../../rollout/decode/stopStrings.ts';
import type { SamplingParams } from '../../rollout/types.ts';
import { type FlagSpec, numberFlag, type ParsedArgs } from '../args.ts';

/** Default maximum number of tokens of an answer. */
const NEW_TOKENS = 160;

export const SAMPLING_FLAGS: Record<string, FlagSpec> = {
  temperature: { value: 'T', help: '0 = greedy (default 1)' },
  'top-k': { value: 'K', help: 'keep the K most likely tokens; 0 = all (default)' },
  'top-p': { value: 'P', help: 'keep the smallest set of mass P; 1 = all (default)' },
  'min-p': { value: 'P', help: 'keep tokens of at least P x the largest probability; 0 = all (default)' },
  'repetition-penalty': { value: 'R', help: 'above 1: tokens of prompt and answer are repeated less' },
  'presence-penalty': { value: 'R', help: 'subtracted from the logits of tokens in the answer' },
  'frequency-penalty': { value: 'R', help: 'the same, times the count of the token' },
  'logit-bias': { value: 'ID=B', repeatable: true, help: 'added to the logit of a token id; repeatable' },
  'min-new-tokens': { value: 'N', help: 'least tokens of an answer (default 0)' },
  'max-new-tokens': { value: 'N', help: `maximum number of tokens in an answer (default ${NEW_TOKENS})` },
  stop: { value: 'TEXT', repeatable: true, help: 'ends the answer; repeatable' },
  'include-stop': { help: 'keep the stop string in the text' },
  seed: { value: 'N', help: 'default 1' },
};

/** Returns the sampling parameters of the flags. Throws InputError. Token ids of --logit-bias must be below `vocabSize`. */
export function samplingOf(
  { flags, lists = {} }: Pick<ParsedArgs, 'flags' | 'lists'>,
  { eosTokenIds, vocabSize }: { eosTokenIds: number[]; vocabSize: number },
): SamplingParams {
  const number = (name: string, byDefault: number, range: [number, number]) =>
    numberFlag(flags, name, byDefault, range);
  const maxNewTokens = integerFlag(flags, 'max-new-tokens', NEW_TOKENS, [1, 1 << 20]);
  return {
    temperature: number('temperature', 1, [0, 100]),
    topK: integerFlag(flags, 'top-k', 0, [0, vocabSize]),
    topP: number('top-p', 1, [1e-6, 1]),
    minP: number('min-p', 0, [0, 1]),
    maxNewTokens,
    minNewTokens: integerFlag(flags, 'min-new-tokens', 0, [0, maxNewTokens]),
    repetitionPenalty: number('repetition-penalty', 1, [1e-3, 1000]),
    presencePenalty: number('presence-penalty', 0, [-100, 100]),
    frequencyPenalty: number('frequency-penalty', 0, [-100, 100]),
    logitBias: biases(lists['logit-bias'] ?? [], vocabSize),
    stopTokenIds: eosTokenIds,
    stop: stopStrings(lists['stop'] ?? []),
    includeStopStrInOutput: flags['include-stop'] === true,
  };
}

/** Returns the value of an integer flag. Throws InputError if the value is outside the range. */
export function integerFlag(flags: ParsedArgs['flags'], name: string, byDefault: number, range: [number, number]) {
  const value = numberFlag(flags, name, byDefault, range);
  if (Number.isInteger(value)) return value;
  throw new InputError(`--${name} is ${value}; allowed: a whole number from ${range[0]} to ${range[1]}.`);
}

function biases(entries: string[], vocabSize: number): [number, number][] {
  if (entries.length > MAX_BIASES)
    throw new InputError(`--logit-bias is given ${entries.length} times. At most ${MAX_BIASES} are allowed.`);
  const read = entries.map((entry): [number, number] => {
    const [, id, bias] = /^(\d+)=([-+.\de]+)$/.exec(entry) ?? [];
    if (id !== undefined && Number(id) < vocabSize && Math.abs(Number(bias)) <= 1e6) return [Number(id), Number(bias)];
    throw new InputError(
      `--logit-bias is "${entry}"; allowed: a token id from 0 to ${vocabSize - 1}, "=", and a number, as 17=-2.5.`,
    );
  });
  const twice = read.find(([id], i) => read.findIndex(([other]) => other === id) < i);
  if (twice) throw new InputError(`--logit-bias names token ${twice[0]} twice. Give it one bias.`);
  return read;
}

function stopStrings(texts: string[]): string[] {
  if (texts.includes(''))
    throw new InputError('--stop is empty, which would end every answer immediately. Leave it out.');
  if (texts.length <= MAX_STOP_STRINGS) return texts;
  throw new InputError(`--stop is given ${texts.length} times. At most ${MAX_STOP_STRINGS} are allowed.`);
}
