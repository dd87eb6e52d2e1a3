/** Converts the tokenizer of a GGUF file back to tokenizer.json and tokenizer_config.json, as far as the file has the information. */

import { InputError } from '../../errors.ts';
import type { TokenizerJson } from '../../model/checkpoint/sourceFiles.ts';
import { type GgufValue, shown } from './header.ts';
import { SPLITTINGS, TOKEN_TYPES, TOKENIZER_JSON } from './names.ts';

type Json = Record<string, unknown>;

const BYTES = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true };
const ENCODED = { ...BYTES, use_regex: false };
const splitBy = (Regex: string): Json => ({
  type: 'Sequence',
  pretokenizers: [{ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false }, ENCODED],
});
const GPT2: Json = { pre_tokenizer: { ...BYTES, use_regex: true } };
const DIGITS: Json = {
  pre_tokenizer: {
    type: 'Sequence',
    pretokenizers: [{ type: 'Digits', individual_digits: true }, GPT2['pre_tokenizer']],
  },
};
const LLAMA3: Json = { pre_tokenizer: splitBy(SPLITTINGS['llama-bpe']), ignore_merges: true, add_bos: true };
const QWEN2: Json = { pre_tokenizer: splitBy(SPLITTINGS.qwen2), normalizer: { type: 'NFC' } };

/** Pre-tokenizers by llama.cpp's name. `add_bos` is its default for a file without the key add_bos_token. */
const PRE_TOKENIZERS: Record<string, Json> = {
  'gpt-2': GPT2,
  olmo: GPT2,
  smollm: DIGITS,
  starcoder: DIGITS,
  refact: DIGITS,
  'llama-bpe': LLAMA3,
  'llama-v3': LLAMA3,
  llama3: LLAMA3,
  qwen2: QWEN2,
  'deepseek-r1-qwen': QWEN2,
};

/**
 * Returns the files of the tokenizer; an empty object if the GGUF file has no tokenizer. Throws InputError for an unsupported tokenizer,
 * and for a tokenizer with more tokens than `vocabSize`.
 */
export function tokenizerOf(
  metadata: ReadonlyMap<string, GgufValue>,
  { file, vocabSize }: { file: string; vocabSize: number },
): TokenizerJson {
  const refuse = (key: string, allowed: string, remedy = 'Choose another file of the model'): never => {
    const found = metadata.get(`tokenizer.ggml.${key}`);
    const text = Array.isArray(found) ? `${found.length} values` : shown(found);
    throw new InputError(`${file} has ${text} for "tokenizer.ggml.${key}"; allowed: ${allowed}. ${remedy}.`);
  };
  const get = (key: string) => metadata.get(`tokenizer.ggml.${key}`);
  if (get('model') === undefined) return {};
  if (get('model') !== 'gpt2')
    refuse('model', '"gpt2", which is byte-level BPE', 'Choose a model with such a tokenizer');
  const [pre, tokens, types, merges] = [get('pre'), get('tokens'), get('token_type'), get('merges')];
  if (typeof pre !== 'string' || !Object.hasOwn(PRE_TOKENIZERS, pre))
    refuse('pre', Object.keys(PRE_TOKENIZERS).join(', '), 'Choose a model with such a tokenizer');
  if (!isListOf(tokens, 'string') || tokens.length === 0 || tokens.length > vocabSize)
    return refuse('tokens', `1 to ${vocabSize} texts, one for each row of the embedding`);
  if (types !== undefined && (!isListOf(types, 'number') || types.length !== tokens.length))
    return refuse('token_type', `${tokens.length} numbers, one for each token`);
  if (types?.some((type) => ![0, ...Object.values(TOKEN_TYPES)].includes(type)))
    return refuse('token_type', 'numbers from 0 to 6');
  const typeOf = (id: number): number => types?.[id] ?? TOKEN_TYPES.normal;
  const used = tokens.flatMap((token, id) => (typeOf(id) === TOKEN_TYPES.unused ? [] : [[token, id] as const]));
  const vocab = new Map(used);
  if (vocab.size !== used.length) refuse('tokens', 'texts that differ from each other');
  const isMerge = (merge: string) => {
    const space = merge.indexOf(' ');
    return space > 0 && merge.indexOf(' ', space + 1) < 0 && vocab.has(merge.slice(0, space) + merge.slice(space + 1));
  };
  if (!isListOf(merges, 'string') || !merges.every(isMerge))
    return refuse('merges', 'two texts and a space between them, which make a token');
  const added = used.flatMap(([content, id]) => {
    const special = typeOf(id) === TOKEN_TYPES.control;
    if (!special && typeOf(id) !== TOKEN_TYPES.userDefined) return [];
    return [{ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special }];
  });
  const { pre_tokenizer, normalizer = null, ignore_merges = false, add_bos = false } = PRE_TOKENIZERS[pre as string];
  const whole = metadata.get(TOKENIZER_JSON);
  const idIn = (key: string): number | undefined => {
    const id = get(key);
    const isId = typeof id === 'number' && Number.isInteger(id) && id >= 0 && id < tokens.length;
    return id === undefined || isId ? id : refuse(key, `an id from 0 to ${tokens.length - 1}`);
  };
  const named = Object.entries(SPECIAL_TOKENS).flatMap(([key, name]) => {
    const id = idIn(key);
    return id === undefined ? [] : [[name, tokens[id]] as const];
  });
  const bosId = idIn('bos_token_id');
  const bos =
    bosId !== undefined && (get('add_bos_token') ?? add_bos) === true ? { id: bosId, text: tokens[bosId] } : undefined;
  return {
    tokenizerJson:
      whole === undefined
        ? {
            version: '1.0',
            truncation: null,
            padding: null,
            added_tokens: added,
            normalizer,
            pre_tokenizer,
            post_processor: postProcessor(bos),
            decoder: { ...BYTES, use_regex: true },
            model: {
              type: 'BPE',
              dropout: null,
              unk_token: null,
              ignore_merges,
              vocab: Object.fromEntries(vocab),
              merges,
            },
          }
        : parseWhole(whole, file),
    tokenizerConfigJson: {
      tokenizer_class: 'PreTrainedTokenizerFast',
      clean_up_tokenization_spaces: false,
      add_prefix_space: false,
      ...(bos && { add_bos_token: true }),
      ...Object.fromEntries(named),
      ...templatesOf(metadata),
    },
  };
}

/** Returns the step that puts a beginning-of-sequence token in front of a text that is not a chat; without `bos`, the step that adds no token. */
function postProcessor(bos: { id: number; text: string } | undefined): Json {
  const bytes = { ...BYTES, trim_offsets: false, use_regex: true };
  if (bos === undefined) return bytes;
  const start = { SpecialToken: { id: bos.text, type_id: 0 } };
  const sequence = (id: string, type_id: number) => ({ Sequence: { id, type_id } });
  const template = {
    type: 'TemplateProcessing',
    single: [start, sequence('A', 0)],
    pair: [start, sequence('A', 0), sequence('B', 1)],
    special_tokens: { [bos.text]: { id: bos.text, ids: [bos.id], tokens: [bos.text] } },
  };
  return { type: 'Sequence', processors: [bytes, template] };
}

/** Parses a complete tokenizer.json. Throws InputError if it is not JSON. Its content is checked when a tokenizer is created from it. */
function parseWhole(text: GgufValue, file: string): Json {
  try {
    const json: unknown = typeof text === 'string' ? JSON.parse(text) : undefined;
    if (typeof json === 'object' && json !== null && !Array.isArray(json)) return json as Json;
  } catch {
    // Invalid JSON ends in the InputError after this block.
  }
  throw new InputError(
    `${file} has a "${TOKENIZER_JSON}" that is not a JSON object. Choose another file of the model.`,
  );
}

const SPECIAL_TOKENS = {
  bos_token_id: 'bos_token',
  eos_token_id: 'eos_token',
  unknown_token_id: 'unk_token',
  padding_token_id: 'pad_token',
};

/** Returns the ids of the tokens that end a turn. llama.cpp has up to three keys for such ids. */
export const endTokenIds = (metadata: ReadonlyMap<string, GgufValue>): number[] =>
  ['eos', 'eot', 'eom'].flatMap((name) => {
    const id = metadata.get(`tokenizer.ggml.${name}_token_id`);
    return typeof id === 'number' ? [id] : [];
  });

const TEMPLATE = 'tokenizer.chat_template';

function templatesOf(metadata: ReadonlyMap<string, GgufValue>): Json {
  const template = metadata.get(TEMPLATE);
  const named = [...metadata].flatMap(([key, text]) =>
    key.startsWith(`${TEMPLATE}.`) ? [{ name: key.slice(TEMPLATE.length + 1), template: text }] : [],
  );
  if (named.length > 0) return { chat_template: [{ name: 'default', template }, ...named] };
  return template === undefined ? {} : { chat_template: template };
}

const isListOf = <T extends 'string' | 'number'>(
  value: GgufValue | undefined,
  type: T,
): value is readonly (T extends 'string' ? string : number)[] =>
  Array.isArray(value) && value.every((item) => typeof item === type);
