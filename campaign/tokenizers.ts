/** Tokenizers of every kind that the library reads: the shipped one, and small ones created here. All end turns with `<|im_end|>`. */

import { readFileSync } from 'node:fs';

type Json = Record<string, unknown>;

export interface TokenizerFiles {
  name: string;
  json: Json;
  config: Json;
}

const SHIPPED = 'checkpoints/gsm8k-tool';
const readJson = (file: string) => JSON.parse(readFileSync(`${SHIPPED}/${file}`, 'utf8')) as Json;

/** ChatML template that trims white space around text from outside, as most templates do. */
const CHATML =
  "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}" +
  '{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}';
/** A template without separators between the outputs of two tools, or between a user's text and the role name that follows. */
export const TIGHT =
  "{% for m in messages %}{% if m.role == 'tool' %}{{ m.content }}{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}" +
  "{{ '<|im_end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

const SPECIAL = ['<unk>', '</s>', '<|im_start|>', '<|im_end|>', '<tool_call>'];
const ASCII = Array.from({ length: 94 }, (_, i) => String.fromCharCode(33 + i));
const BYTES = Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, '0')}>`);
const added = (extra: Json = {}) =>
  SPECIAL.map((content, id) => ({ id, content, special: true, normalized: false, ...extra }));

const unigram = (parts: Json = {}): Json => ({
  normalizer: null,
  pre_tokenizer: { type: 'Metaspace', replacement: '\u2581', prepend_scheme: 'always' },
  post_processor: null,
  decoder: { type: 'Metaspace', replacement: '\u2581' },
  added_tokens: added(),
  model: {
    type: 'Unigram',
    unk_id: 0,
    vocab: [...SPECIAL, '\u2581', '\n', ...ASCII, '\u2581hello', 'end', '|>'].map((piece) => [piece, -piece.length]),
  },
  ...parts,
});

/** Like Llama 2: no pre-tokenizer, white space by the normalizer, bytes for unknown characters. */
const sentencePiece = (parts: Json = {}): Json => ({
  normalizer: {
    type: 'Sequence',
    normalizers: [
      { type: 'Prepend', prepend: '\u2581' },
      { type: 'Replace', pattern: { String: ' ' }, content: '\u2581' },
    ],
  },
  pre_tokenizer: null,
  post_processor: null,
  decoder: {
    type: 'Sequence',
    decoders: [
      { type: 'Replace', pattern: { String: '\u2581' }, content: ' ' },
      { type: 'ByteFallback' },
      { type: 'Fuse' },
      { type: 'Strip', content: ' ', start: 1, stop: 0 },
    ],
  },
  added_tokens: added(),
  model: {
    type: 'BPE',
    unk_token: '<unk>',
    byte_fallback: true,
    vocab: Object.fromEntries(
      [...SPECIAL, ...BYTES, '\u2581', ...ASCII, 'en', '\u2581a'].map((piece, id) => [piece, id]),
    ),
    merges: ['e n', '\u2581 a'],
  },
  ...parts,
});

const wordPiece = (): Json => ({
  normalizer: { type: 'BertNormalizer', clean_text: true, handle_chinese_chars: true, lowercase: true },
  pre_tokenizer: { type: 'BertPreTokenizer' },
  post_processor: null,
  decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
  added_tokens: added(),
  model: {
    type: 'WordPiece',
    unk_token: '<unk>',
    continuing_subword_prefix: '##',
    vocab: Object.fromEntries([...SPECIAL, ...ASCII, ...ASCII.map((c) => `##${c}`)].map((piece, id) => [piece, id])),
  },
});

export function tokenizers(): TokenizerFiles[] {
  const [json, config] = [readJson('tokenizer.json'), readJson('tokenizer_config.json')];
  const names = json['added_tokens'] as Json[];
  const chatml = { eos_token: '<|im_end|>', chat_template: CHATML };
  const shippedWith = (token: Json, normalizer: unknown = null) => ({
    ...json,
    added_tokens: names.map((name) => ({ ...name, ...token })),
    normalizer,
  });
  return [
    { name: 'shipped', json, config },
    { name: 'shipped, tight template', json, config: { ...config, chat_template: TIGHT } },
    { name: 'NFKC', json: shippedWith({ normalized: true }, { type: 'NFKC' }), config: chatml },
    { name: 'Lowercase', json: shippedWith({ normalized: true }, { type: 'Lowercase' }), config: chatml },
    {
      name: 'Replace',
      json: shippedWith({ normalized: true }, { type: 'Replace', pattern: { String: '~' }, content: '|' }),
      config: chatml,
    },
    { name: 'lstrip, rstrip', json: shippedWith({ lstrip: true, rstrip: true }), config: chatml },
    { name: 'single_word', json: shippedWith({ single_word: true }), config: { ...chatml, chat_template: TIGHT } },
    { name: 'Unigram', json: unigram(), config: chatml },
    {
      name: 'Unigram, NFKC',
      json: unigram({ normalizer: { type: 'NFKC' } }),
      config: { ...chatml, chat_template: TIGHT },
    },
    {
      name: 'Metaspace first',
      json: unigram({ pre_tokenizer: { type: 'Metaspace', replacement: '\u2581', prepend_scheme: 'first' } }),
      config: chatml,
    },
    { name: 'SentencePiece BPE', json: sentencePiece(), config: chatml },
    { name: 'WordPiece', json: wordPiece(), config: chatml },
  ];
}
