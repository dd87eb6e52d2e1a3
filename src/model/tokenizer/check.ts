/**
 * Checks a tokenizer.json before a tokenizer is created. The library that reads the file trusts its ids, steps and
 * replacements, so a bad file could hang it or exhaust memory.
 */

import type { Tokenizer } from '@huggingface/tokenizers';
import { InputError } from '../../errors.ts';
import { checkPattern } from './pattern.ts';

type Json = Record<string, unknown>;

/** Maximum token id, larger than any vocabulary. */
const MAX_ID = 2 ** 22;
/** Maximum number of steps of a normalizer, pre-tokenizer or decoder, and maximum depth of nested steps. */
const MAX_STEPS = 100;
const MAX_DEPTH = 10;
/** Largest factor by which all steps together can lengthen a text. */
const MAX_GROWTH = 100;
/** Maximum number of added tokens; Gemma 3 has 6,414. The tokenizer searches each of them in every text. */
const MAX_ADDED = 20_000;
const MAX_NAME = 200;

const BEHAVIORS = ['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous'];
/**
 * Keys of the model and of steps whose value must be a text (`TEXTS`), or true or false (`FLAGS`, `MORE_FLAGS`). A null
 * or missing key has the library's default.
 */
const TEXTS = ['end_of_word_suffix', 'continuing_subword_prefix', 'unk_token'];
const FLAGS = ['fuse_unk', 'byte_fallback', 'ignore_merges', 'invert', 'use_regex', 'add_prefix_space', 'split'];
const MORE_FLAGS = ['individual_digits', 'lowercase', 'strip_accents', 'clean_text', 'handle_chinese_chars', 'cleanup'];

/** Throws InputError for a tokenizer.json that would hang, use all memory or be misread. */
export function checkTokenizer(json: Json): void {
  const model = objectOf(json['model'], 'model');
  checkType(model);
  checkTypes(model, 'model');
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

/**
 * Checks the type of the model. Old files have no type: a model with a list of pieces is Unigram, one with merges is
 * BPE.
 */
function checkType({ type, vocab, merges }: Json): void {
  const isOld = type === undefined && (Array.isArray(vocab) || Array.isArray(merges));
  if (!isOld && !['BPE', 'Unigram', 'WordPiece'].includes(type as string))
    refuse('model.type', type, 'a name: BPE, Unigram or WordPiece');
}

/** Checks that a model's or step's text keys are texts and its flags are true or false. */
function checkTypes(part: Json, place: string): void {
  const check = (keys: readonly string[], type: string, allowed: string) => {
    const key = keys.find((one) => (part[one] ?? undefined) !== undefined && typeof part[one] !== type);
    if (key !== undefined) refuse(`${place}.${key}`, part[key], allowed);
  };
  check(TEXTS, 'string', 'a text');
  check([...FLAGS, ...MORE_FLAGS], 'boolean', 'true or false');
  const { dropout, max_input_chars_per_word: longest } = part;
  if (dropout) refuse(`${place}.dropout`, dropout, 'null, because encoding must repeat');
  if (longest !== undefined && longest !== null && !(Number.isInteger(longest) && (longest as number) > 0))
    refuse(`${place}.max_input_chars_per_word`, longest, 'a positive whole number');
}

/** Test text with letters, digits and marks, and with white space that patterns treat differently. */
const PROBE = 'The quick brown fox JUMPS over 12 lazy dogs,\n 3456789 in 0.5 h.  ab';
const lettersOf = (text: string): string => text.replace(/[^A-Za-z0-9]/g, '').toLowerCase();

/**
 * Throws InputError if normalizer or pre-tokenizer drop letters or digits of a text, for example by a split that removes unknown
 * characters. The language model would then be trained on other texts than the task's.
 */
export function checkKeepsText({ normalizer, pre_tokenizer }: Pick<Tokenizer, 'normalizer' | 'pre_tokenizer'>): void {
  const text = normalizer ? normalizer.normalize(PROBE) : PROBE;
  const kept = pre_tokenizer ? pre_tokenizer.pre_tokenize(text).join('') : text;
  if (lettersOf(kept).length >= lettersOf(PROBE).length) return;
  const key = lettersOf(text).length < lettersOf(PROBE).length ? 'normalizer' : 'pre_tokenizer';
  refuse(key, kept, `steps that keep letters and digits of ${JSON.stringify(PROBE)}`, 'keeps only');
}

function checkVocabulary({ type, vocab, unk_id }: Json): void {
  if (Array.isArray(vocab)) {
    const isPiece = (piece: unknown) =>
      Array.isArray(piece) && typeof piece[0] === 'string' && Number.isFinite(piece[1]);
    const bad = (vocab as unknown[]).find((piece) => !isPiece(piece));
    if (bad !== undefined || vocab.length < 2)
      refuse('model.vocab', bad ?? vocab, 'a list of [text, number], at least two');
    const hasUnknown = Number.isInteger(unk_id) && (unk_id as number) >= 0 && (unk_id as number) < vocab.length;
    if (unk_id !== undefined && unk_id !== null && !hasUnknown) refuse('model.unk_id', unk_id, 'the place of a piece');
    return;
  }
  if (type === 'Unigram') refuse('model.vocab', vocab, 'a list of [text, number]');
  const ids = Object.values(objectOf(vocab, 'model.vocab'));
  for (const id of ids) checkId(id, 'model.vocab');
  if (ids.length < 2) refuse('model.vocab', vocab, 'an object of at least two tokens');
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

/** Checks the steps of a normalizer, pre-tokenizer or decoder, including nested ones. */
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
 * Returns the maximum number of characters that one character can become in a step. Also checks the step's pattern,
 * length and texts.
 */
function growthOf(step: Json, key: string): number {
  const { pattern, content, length, prepend, replacement, str_rep, suffix, behavior } = step;
  checkTypes(step, key);
  if (behavior !== undefined && !BEHAVIORS.some((known) => known === behavior))
    refuse(`${key}.behavior`, behavior, BEHAVIORS.join(', '));
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
    // In a replacement, the library replaces "$&" and similar texts by the match, although the format does not say so.
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
