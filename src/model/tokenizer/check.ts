/**
 * Checks a tokenizer.json before a tokenizer is created. The library that reads it loops over every id, runs every
 * step, and replaces text as often as the file says.
 */

import { InputError } from '../../errors.ts';
import { checkPattern } from './pattern.ts';

type Json = Record<string, unknown>;

/** Larger than any vocabulary. */
const MAX_ID = 2 ** 22;
/** Maximum number of steps of a normalizer, pre-tokenizer or decoder, and their greatest nesting. */
const MAX_STEPS = 100;
const MAX_DEPTH = 10;
/** Largest factor by which the steps can lengthen a text. */
const MAX_GROWTH = 100;
/** Maximum number of added tokens; Gemma 3 has 6,414. Each is searched for in every text. */
const MAX_ADDED = 20_000;
const MAX_NAME = 200;

/** Throws InputError for a file that would hang, use all memory or be misread. */
export function checkTokenizer(json: Json): void {
  const model = objectOf(json['model'], 'model');
  checkVocabulary(model);
  checkMerges(model['merges']);
  const added = json['added_tokens'] ?? [];
  if (!Array.isArray(added) || added.length > MAX_ADDED)
    refuse('added_tokens', added, `a list of at most ${MAX_ADDED}`);
  for (const token of added as unknown[]) {
    const { id, content } = objectOf(token, 'added_tokens');
    if (typeof content !== 'string' || content.length > MAX_NAME)
      refuse('added_tokens.content', content, `a text of at most ${MAX_NAME} characters`);
    checkId(id, 'added_tokens.id');
  }
  for (const key of ['normalizer', 'pre_tokenizer', 'decoder']) checkSteps(json[key], key);
}

function checkVocabulary({ type, vocab, unk_id }: Json): void {
  if (Array.isArray(vocab)) {
    const isPiece = (piece: unknown) =>
      Array.isArray(piece) && typeof piece[0] === 'string' && Number.isFinite(piece[1]);
    const bad = (vocab as unknown[]).find((piece) => !isPiece(piece));
    if (bad !== undefined || vocab.length === 0) refuse('model.vocab', bad ?? vocab, 'a list of [text, number]');
    const hasUnknown = Number.isInteger(unk_id) && (unk_id as number) >= 0 && (unk_id as number) < vocab.length;
    if (unk_id !== undefined && unk_id !== null && !hasUnknown) refuse('model.unk_id', unk_id, 'the place of a piece');
    return;
  }
  if (type === 'Unigram') refuse('model.vocab', vocab, 'a list of [text, number]');
  for (const id of Object.values(objectOf(vocab, 'model.vocab'))) checkId(id, 'model.vocab');
}

function checkMerges(merges: unknown): void {
  if (merges === undefined || merges === null) return;
  const isPair = (merge: unknown) =>
    typeof merge === 'string' ||
    (Array.isArray(merge) && merge.length === 2 && merge.every((part) => typeof part === 'string'));
  if (!Array.isArray(merges)) refuse('model.merges', merges, 'a list');
  const bad = (merges as unknown[]).find((merge) => !isPair(merge));
  if (bad !== undefined) refuse('model.merges', bad, 'pairs of texts');
  const kinds = new Set((merges as unknown[]).map((merge) => typeof merge));
  if (kinds.size > 1) refuse('model.merges', (merges as unknown[])[0], 'all of one kind, "a b" or ["a", "b"]');
}

function checkId(id: unknown, key: string): void {
  if (!(Number.isInteger(id) && (id as number) >= 0 && (id as number) < MAX_ID))
    refuse(key, id, `whole numbers from 0 to ${MAX_ID - 1}`);
}

/** Checks the steps of one part, including nested ones. */
function checkSteps(part: unknown, key: string): void {
  let [steps, growth] = [0, 1];
  const visit = (step: unknown, depth: number): void => {
    if (step === null || step === undefined) return;
    const { type, normalizers, pretokenizers, decoders, ...own } = objectOf(step, key);
    if (++steps > MAX_STEPS || depth > MAX_DEPTH)
      refuse(key, type, `at most ${MAX_STEPS} steps, ${MAX_DEPTH} deep`, 'has too many steps at');
    growth *= growthOf(own, key);
    if (growth > MAX_GROWTH) refuse(key, type, `at most ${MAX_GROWTH} times as long`, 'makes a text too long at');
    for (const inner of [normalizers, pretokenizers, decoders]) {
      if (inner !== undefined && !Array.isArray(inner)) refuse(key, inner, 'a list of steps');
      for (const next of (inner as unknown[] | undefined) ?? []) visit(next, depth + 1);
    }
  };
  visit(part, 0);
}

/**
 * Number of characters that one character can become in this step. Also checks the step's pattern, length and texts.
 */
function growthOf(step: Json, key: string): number {
  const { pattern, content, length, prepend, replacement, str_rep, suffix } = step;
  if (length !== undefined && !(Number.isInteger(length) && (length as number) > 0))
    refuse(`${key}.length`, length, 'a positive whole number');
  const texts = [content, prepend, replacement, str_rep, suffix].filter((text) => text !== undefined && text !== null);
  const bad = texts.find((text) => typeof text !== 'string' || text.length > MAX_GROWTH);
  if (bad !== undefined) refuse(key, bad, `texts of at most ${MAX_GROWTH} characters`);
  if (pattern !== undefined) {
    const { String: text, Regex: regex } = objectOf(pattern, `${key}.pattern`);
    const source = regex ?? text;
    if (typeof source !== 'string' || source === '') refuse(`${key}.pattern`, pattern, 'a text that is not empty');
    if (regex !== undefined) checkPattern(source);
    // The library replaces "$&" and similar texts by the match, although the format does not.
    if (typeof content === 'string' && /\$[$&`'<\d]/.test(content))
      refuse(`${key}.content`, content, 'a text without "$"');
  }
  return Math.max(1, ...texts.map((text) => (text as string).length));
}

function objectOf(value: unknown, key: string): Json {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) refuse(key, value, 'an object');
  return value as Json;
}

function refuse(key: string, value: unknown, allowed: string, has = 'has'): never {
  const found = (JSON.stringify(value) ?? 'nothing').slice(0, 80);
  throw new InputError(`tokenizer.json: "${key}" ${has} ${found}; allowed: ${allowed}. Use the file of another model.`);
}
