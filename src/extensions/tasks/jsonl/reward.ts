/** The rewards of a jsonl task. They compare a response with the answer in the problem's line of the file. */

import { InputError } from '../../../errors.ts';
import { checkPattern } from '../../../model/tokenizer/pattern.ts';
import type { Reward } from '../../../tasks/task.ts';
import { lastNumber } from './number.ts';

export const JSONL_REWARDS = ['exact', 'number', 'contains', 'regex'] as const;
export type JsonlRewardName = (typeof JSONL_REWARDS)[number];

/** Options of a comparison. */
export interface JsonlRewardOptions {
  /** For the rewards exact, contains and regex: true to ignore upper and lower case. Default: false. */
  ignoreCase: boolean;
  /**
   * For the reward regex: pattern that finds the answer in the response. Its first group is the answer, or the full match if it has no
   * group.
   */
  pattern: string;
  /** For the reward regex: flags of the JavaScript pattern, from i, m, s, u and v. Default: none. */
  flags: string;
}

export const JSONL_REWARD_OPTIONS: JsonlRewardOptions = { ignoreCase: false, pattern: '', flags: '' };

/** Names of the options that each reward accepts. */
const TAKES: Record<JsonlRewardName | 'own', readonly (keyof JsonlRewardOptions)[]> = {
  exact: ['ignoreCase'],
  contains: ['ignoreCase'],
  number: [],
  regex: ['ignoreCase', 'pattern', 'flags'],
  own: [],
};

/**
 * Number of characters that a pattern searches. A pattern that passes `checkPattern` takes at most cubic time in the length of the text,
 * here about a second.
 */
const SEARCHED_CHARACTERS = 1000;

/** A way to compare responses with answers. */
export interface Comparison {
  reward(response: string, answer: string): Reward;
  /** Returns why no response could ever match this answer, as the end of a sentence. Undefined if a response could match. */
  unfit(answer: string): string | undefined;
}

/**
 * Creates the comparison of a reward. Throws InputError if an option does not belong to this reward, or if a pattern is invalid or could
 * run forever.
 */
export function comparisonOf(name: JsonlRewardName, options: JsonlRewardOptions): Comparison {
  checkTaken(name, options);
  const clean = (text: string) => {
    const trimmed = text.normalize('NFC').trim();
    return options.ignoreCase ? trimmed.toLowerCase() : trimmed;
  };
  const found = (pred: string | null | undefined, isRight: boolean): Reward => {
    const answered = typeof pred === 'string';
    const acc = isRight ? 1 : 0;
    return { score: acc, acc, extra: { answered: answered ? 1 : 0 }, ...(answered && { pred }) };
  };
  const fits = () => undefined;
  switch (name) {
    case 'exact':
      return { reward: (response, answer) => found(response.trim(), clean(response) === clean(answer)), unfit: fits };
    case 'contains':
      return {
        reward(response, answer) {
          const acc = clean(response).includes(clean(answer)) ? 1 : 0;
          return { score: acc, acc };
        },
        unfit: fits,
      };
    case 'number':
      return {
        reward(response, answer) {
          const number = lastNumber(response);
          return found(number, number !== null && number === lastNumber(answer));
        },
        unfit: (answer) =>
          lastNumber(answer) === null
            ? 'without a certain number for the reward "number". Write it like 1234.5 or 1,234.5'
            : undefined,
      };
    case 'regex': {
      const pattern = compiled(options);
      return {
        reward(response, answer) {
          const match = [...response.slice(-SEARCHED_CHARACTERS).matchAll(pattern)].at(-1);
          const text = match && match.length > 1 ? match[1] : match?.[0];
          return found(text?.trim(), text !== undefined && clean(text) === clean(answer));
        },
        unfit: fits,
      };
    }
  }
}

/** Throws InputError if an option is set that this reward ignores. */
export function checkTaken(name: JsonlRewardName | 'own', options: JsonlRewardOptions): void {
  for (const key of Object.keys(JSONL_REWARD_OPTIONS) as (keyof JsonlRewardOptions)[])
    if (options[key] !== JSONL_REWARD_OPTIONS[key] && !TAKES[name].includes(key)) {
      const others = JSONL_REWARDS.filter((reward) => TAKES[reward].includes(key)).join(', ');
      const reward = name === 'own' ? 'a custom reward' : `the reward "${name}"`;
      throw new InputError(`task.options.${key} is for the reward ${others}, and not for ${reward}. Leave it out.`);
    }
}

function compiled({ pattern, flags }: JsonlRewardOptions): RegExp {
  if (pattern === '')
    throw new InputError(
      'task.options.pattern is missing; the reward "regex" finds the answer by it. Set it, e.g. to "<answer>(.*?)</answer>".',
    );
  if (!/^[imsuv]*$/.test(flags))
    throw new InputError(`task.options.flags is "${flags}"; allowed: some of i, m, s, u and v. Change them.`);
  checkPattern(pattern, 'task.options.pattern', 'write a simpler one (the answer is trimmed), or reward: module');
  try {
    return new RegExp(pattern, `${flags}g`);
  } catch (error) {
    throw new InputError(`task.options.pattern: ${(error as Error).message}. Correct it.`, { cause: error });
  }
}
