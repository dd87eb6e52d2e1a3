/** Builds the input of a rubric's judge for a sample: the tokens of the prompts, and those of the possible replies. */

import { concat } from '../../../concat.ts';
import type { SequenceGroup } from '../../../model/packing.ts';
import type { ChatTokenizer } from '../../../model/tokenizer/chat.ts';
import type { ScoredSample } from '../../../tasks/task.ts';
import { fillTemplate, question } from '../../../tasks/rewards/judgePrompt.ts';
import type { Criterion, Rubric } from './parse.ts';

/** Criteria of one sample, and the token sequences whose log-probs decide them. */
export interface JudgedSample {
  criteria: readonly Criterion[];
  groups: SequenceGroup[];
  /** [criteria][choices] where the log-prob of each choice is found: indices of its group and its sample in `groups`. */
  places: { group: number; sample: number }[][];
}

/** Upper bound of the characters per token in any vocabulary. A text that must have too many tokens is therefore not tokenized. */
const LONGEST_TOKEN = 128;

/**
 * Returns prompts and replies of the criteria that apply to the sample. If one of the prompts with its reply has more than `maxLength`
 * tokens, returns their number, or a lower bound of it. The prompt is a user message, and each reply ends with the end-of-turn token.
 */
export function judgedSample(
  { prompt, criteria: all }: Rubric,
  sample: ScoredSample,
  tokenizer: ChatTokenizer,
  maxLength: number,
): JudgedSample | number {
  const { dataSource = '' } = sample.problem;
  const criteria = all.filter(({ when }) => !when || when.dataSource.includes(dataSource));
  const texts = {
    question: question(sample),
    response: sample.response,
    trace: sample.messages.map(({ role, content }) => `${role}: ${content}`).join('\n'),
    answer: sample.problem.answer,
  };
  const length = Object.entries(texts).reduce(
    (sum, [name, { length: n }]) => sum + (prompt.includes(`{${name}}`) ? n : 0),
    0,
  );
  if (length > LONGEST_TOKEN * maxLength) return Math.ceil(length / LONGEST_TOKEN);
  const quoted = Object.fromEntries(Object.entries(texts).map(([name, text]) => [name, quote(text)]));
  const asked: { ids: Uint32Array; replies: Uint32Array[] }[] = [];
  for (const { description, choices } of criteria) {
    const names = Object.keys(choices);
    const values = { ...quoted, criterion: description, choices: names.join(', ') };
    const ids = tokenizer.encodeChat([{ role: 'user', content: fillTemplate(prompt, values) }]);
    const replies = names.map((name) =>
      Uint32Array.of(...tokenizer.encodePlain(name, { isStart: false }), tokenizer.eosTokenIds[0]),
    );
    const longest = ids.length + Math.max(...replies.map((reply) => reply.length));
    if (longest > maxLength) return longest;
    asked.push({ ids, replies });
  }
  return { criteria, ...laidOut(asked) };
}

/**
 * Puts "> " before every line of a text, as in a mail. No line of an untrusted text can then be mistaken for a line of the prompt. Splits
 * at every character that any reader could treat as a line break.
 */
const quote = (text: string): string =>
  text
    .split(/\r\n|[\n\v\f\r\u0085\u2028\u2029]/)
    .map((line) => `> ${line}`)
    .join('\n');

/**
 * Arranges prompts and replies in groups that share common prompt tokens, in the way that takes fewer rows. Either all prompts share their
 * common prefix, and the rest of a prompt is repeated before each of its replies. Or each prompt is computed once and shared by its
 * replies.
 */
function laidOut(asked: readonly { ids: Uint32Array; replies: Uint32Array[] }[]): Omit<JudgedSample, 'criteria'> {
  if (asked.length === 0) return { groups: [], places: [] };
  const common = commonLength(asked.map(({ ids }) => ids));
  const repeated = asked.reduce((sum, { ids, replies }) => sum + replies.length * (ids.length - common), common);
  const apart = asked.reduce((sum, { ids }) => sum + ids.length, 0);
  if (apart <= repeated)
    return {
      groups: asked.map(({ ids, replies }) => ({ prompt: ids, samples: replies.map((reply) => scored([], reply)) })),
      places: asked.map(({ replies }, group) => replies.map((_, sample) => ({ group, sample }))),
    };
  let next = 0;
  const samples = asked.flatMap(({ ids, replies }) => replies.map((reply) => scored(ids.subarray(common), reply)));
  const places = asked.map(({ replies }) => replies.map(() => ({ group: 0, sample: next++ })));
  return { groups: [{ prompt: asked[0].ids.slice(0, common), samples }], places };
}

/** Returns a sample in which only the tokens of the reply have mask 1. */
function scored(before: ArrayLike<number>, reply: Uint32Array): SequenceGroup['samples'][number] {
  const tokens = concat(Uint32Array, [before, reply]);
  return { tokens, mask: new Uint8Array(tokens.length).fill(1, before.length) };
}

function commonLength([first, ...others]: readonly Uint32Array[]): number {
  const differs = others.map((ids) => first.findIndex((id, t) => ids[t] !== id)).filter((t) => t >= 0);
  return Math.min(first.length, ...differs);
}
