/** Untrusted tokenizers and chat templates. */

import fc from 'fast-check';
import { type TokenizerFiles, tokenizers } from '../tokenizers.ts';
import { encodeJson, mutatedBytes, mutatedJson, ODD } from './mutate.ts';
import type { Case } from './weights.ts';

type Json = Record<string, unknown>;

const file = (name: string, json: unknown, config: unknown): Case => ({
  name,
  input: {
    kind: 'tokenizer',
    files: new Map([
      ['tokenizer.json', json instanceof Uint8Array ? json : encodeJson(json)],
      ['tokenizer_config.json', encodeJson(config)],
    ]),
  },
});

/** Regular expressions that take forever on some text, or that are invalid. */
const PATTERNS = [
  ...['(a+)+$', '(a*)*b', '(a|a)+$', '(a|ab|b)*c', '(?:a?){40}a{40}', '(.*)*x', '(\\s+)+\\u0000', '([a-z]+)*\\d$'],
  ...['a*a*a*a*a*a*b', '(a+)\\1$', '(?=(a+)+$)', '(?:(?:a{1,9}){1,9}){1,9}b', '.*.*.*.*.*=', '(\\w|\\d)+!$', '(ab?)+c'],
  ...['(', '[', '\\', '*', '(?<x', '\\p{Magic}', '[z-a]', 'a{99999999999}', '(?i', '[[:magic:]]', '(?#x)', '(?>a)'],
];

function handmade({ json, config }: TokenizerFiles): Case[] {
  const added = json['added_tokens'] as Json[];
  const model = json['model'] as Json;
  const vocab = model['vocab'] as Record<string, number>;
  const of = (name: string, change: Json) => file(name, { ...json, ...change }, config);
  const token = (content: unknown, more: Json = {}) =>
    of(`added token ${JSON.stringify(content).slice(0, 20)} ${JSON.stringify(more)}`, {
      added_tokens: [...added, { id: 512, content, special: true, normalized: false, ...more }],
    });
  const normalizers: Json[] = [
    { type: 'Replace', pattern: { String: 'a' }, content: 'a'.repeat(1e5) },
    { type: 'Replace', pattern: { String: '' }, content: 'x'.repeat(1000) },
    { type: 'Replace', pattern: { Regex: '.' }, content: "$'$'" },
    { type: 'Sequence', normalizers: Array(40).fill({ type: 'Replace', pattern: { String: 'a' }, content: 'aa' }) },
    { type: 'Sequence', normalizers: Array(40).fill({ type: 'Replace', pattern: { Regex: '.' }, content: 'xy' }) },
    { type: 'Sequence', normalizers: Array(30).fill({ type: 'Prepend', prepend: 'x'.repeat(1e6) }) },
    { type: 'Prepend', prepend: 'x'.repeat(2e7) },
    { type: 'Prepend' },
    Array.from({ length: 500 }).reduce<Json>((inner) => ({ type: 'Sequence', normalizers: [inner] }), { type: 'NFC' }),
    ...PATTERNS.map((Regex) => ({ type: 'Replace', pattern: { Regex }, content: 'x' })),
  ];
  const preTokenizers: Json[] = [
    ...[0, -1, 0.1, NaN, 'x', null, 1e9].map((length) => ({ type: 'FixedLength', length })),
    { type: 'Split', pattern: {}, behavior: 'Isolated' },
    { type: 'Split', pattern: { String: '' }, behavior: 'Isolated' },
    { type: 'Sequence', pretokenizers: [null, 7, {}] },
    { type: 'Metaspace', replacement: 'x'.repeat(1e5) },
    { type: 'Replace', pattern: { String: '' }, content: 'x'.repeat(1e5) },
    ...PATTERNS.map((Regex) => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false })),
  ];
  const decoders: Json[] = [
    { type: 'Strip', content: '', start: 1e12, stop: 1e12 },
    { type: 'Replace', pattern: { String: '' }, content: 'x'.repeat(1e6) },
    { type: 'BPEDecoder', suffix: '' },
    { type: 'CTC' },
    ...PATTERNS.slice(0, 6).map((Regex) => ({ type: 'Replace', pattern: { Regex }, content: 'x' })),
  ];
  const ids = [-1, 0.5, 'x', null, 1e9, 2 ** 32 - 2, 2 ** 32, 2 ** 53, NaN, [], 3];
  return [
    ...normalizers.map((normalizer, i) => of(`normalizer ${i}`, { normalizer })),
    ...preTokenizers.map((pre_tokenizer, i) => of(`pre_tokenizer ${i}`, { pre_tokenizer })),
    ...decoders.map((decoder, i) => of(`decoder ${i}`, { decoder })),
    ...ids.map((id) => token('<more>', { id })),
    ...['', '\n', 'a', ' ', '\ue000', 'x'.repeat(1e6), 7, null, ['x'], '<|im_end|>'].map((content) => token(content)),
    of('100,000 added tokens', {
      added_tokens: [
        ...added,
        ...Array.from({ length: 1e5 }, (_, i) => ({ id: 512 + i, content: `<${i}>`, special: true })),
      ],
    }),
    ...ids.map((id) => of(`an id ${String(id)}`, { model: { ...model, vocab: { ...vocab, more: id } } })),
    of('two tokens of one id', { model: { ...model, vocab: { ...vocab, more: 300 } } }),
    ...[['a'], ['a b c'], [['a']], [[1, 2]], 'a b', [null], Array(2e5).fill('a b')].map((merges, i) =>
      of(`merges ${i}`, { model: { ...model, merges } }),
    ),
    ...[[], {}, [['a']], [[1, 2]], [['a', 'b']], [['a', NaN]], { a: {} }].map((odd, i) =>
      of(`Unigram of vocabulary ${i}`, { model: { type: 'Unigram', unk_id: 0, vocab: odd } }),
    ),
    ...[-1, 5, null, 'x'].map((unk_id) =>
      of(`Unigram with unk_id ${unk_id}`, {
        model: {
          type: 'Unigram',
          unk_id,
          vocab: [
            ['<|im_end|>', -1],
            ['a', -2],
          ],
        },
      }),
    ),
    ...ODD.flatMap((odd, i) =>
      ['eos_token', 'pad_token', 'bos_token', 'chat_template', 'additional_special_tokens'].map((key) =>
        file(`tokenizer_config: ${key} = odd value ${i}`, json, { ...config, [key]: odd }),
      ),
    ),
    ...[[], [{}], [{ name: 'default' }], [{ name: 'default', template: 7 }], [null]].map((chat_template, i) =>
      file(`list of templates ${i}`, json, { ...config, chat_template }),
    ),
  ];
}

export function tokenizerCases(seed: number, count: number): Case[] {
  const [shipped, ...others] = tokenizers();
  const made = handmade(shipped);
  // Most vocabularies are small, because each change then affects a larger part.
  const kinds = [shipped, ...others.slice(-5)];
  const rest = Math.max(0, count - made.length);
  const drawn = fc.sample(
    fc.oneof(
      ...kinds.map(({ json, config }) => mutatedJson(json).map((changed) => [changed, config] as const)),
      mutatedJson(shipped.config).map((changed) => [shipped.json, changed] as const),
      mutatedBytes(encodeJson(others[6].json)).map((bytes) => [bytes, shipped.config] as const),
    ),
    { seed, numRuns: rest },
  );
  return [
    ...made.filter((_, i) => count >= made.length || i % Math.ceil(made.length / count) === 0),
    ...drawn.flatMap(([json, config], i) => {
      // The code that reads the file refuses invalid JSON before a tokenizer is created.
      if (json instanceof Uint8Array && !isJson(json)) return [];
      return [file(`tokenizer ${i} of seed ${seed}`, json, config)];
    }),
  ];
}

function isJson(bytes: Uint8Array): boolean {
  try {
    JSON.parse(new TextDecoder().decode(bytes));
    return true;
  } catch {
    return false;
  }
}

const LOOP = '{% for i in range(9999) %}';
const END = '{% endfor %}';
/** Templates that import, raise, loop, grow or access names that must be hidden from them. */
const TEMPLATES = [
  ...[
    "{% import 'os' %}",
    "{% include '/etc/passwd' %}",
    "{% extends 'x' %}",
    "{% from 'x' import y %}",
    '{{',
    '{%',
    '{#',
  ],
  ...[
    "{{ raise_exception('no') }}",
    '{{ raise_exception() }}',
    '{{ raise_exception(messages) }}',
    '{{ undefined_name() }}',
  ],
  ...[
    "{{ ''.constructor }}",
    "{{ ''.__class__.__mro__ }}",
    '{{ messages.__proto__ }}',
    "{{ range.constructor('return 1')() }}",
  ],
  ...[
    "{{ messages[0]['__proto__'] }}",
    '{{ messages.constructor.constructor }}',
    "{{ (messages|attr('constructor')) }}",
  ],
  ...[
    '{{ range(1000000000) }}',
    '{{ range(0, 1e9) | list }}',
    '{{ range(5, 1, 0) }}',
    '{{ range() }}',
    "{{ range('x') }}",
  ],
  `${LOOP}${LOOP}x${END}${END}`,
  `${LOOP}${LOOP}${LOOP}${END}${END}${END}`,
  '{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}',
  '{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}',
  "{% set n = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}",
  "{% set n = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
  '{% set n = namespace(l=[1, 2]) %}{% for i in range(60) %}{% set n.l = n.l + n.l %}{% endfor %}',
  '{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l | tojson }}',
  '{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}',
  '{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l == n.l }}',
  "{{ 'x' * 1000000000 }}",
  '{{ [1] * 1000000000 }}',
  "{{ 'a\\nb' | indent(1000000000) }}",
  '{{ messages | tojson(indent=1000000000) }}',
  "{{ ('a' | replace('', 'xxxxxxxxxx')) }}",
  "{% set n = namespace(s='aaaaaaaa') %}{% for i in range(40) %}{% set n.s = n.s | replace('a', 'aaaaaaaa') %}{% endfor %}",
  "{% set n = namespace(s='aaaaaaaa') %}{% for i in range(40) %}{% set n.s = n.s.replace('a', 'aaaaaaaa') %}{% endfor %}",
  "{% set n = namespace(s='aaaaaaaa') %}{% for i in range(40) %}{% set n.s = [n.s, n.s, n.s] | join('aaaa') %}{% endfor %}",
  '{% set n = namespace(l=range(9999)) %}{% for i in range(9999) %}{% set n.l = n.l | sort | reverse | list %}{% endfor %}',
  '{% set n = namespace(l=range(9999)) %}{% for i in range(9999) %}{% set x = n.l | unique %}{% endfor %}',
  "{% set l = range(9999) %}{% for i in l %}{{ l | join('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx') | length }}{% endfor %}",
  "{% set l = range(9999) | join('') %}{% for i in range(9999) %}{% if 'zzzz' in l.split('') %}{% endif %}{% endfor %}",
  "{% set l = range(9999) | join('') %}{% for i in range(9999) %}{{ l | upper | lower | title | length }}{% endfor %}",
  '{% set m = messages %}{% for i in range(9999) %}{% set m = [m, m] %}{% endfor %}{{ m | tojson }}',
  '{% for m in messages %}{% set m.content = m.content * 100 %}{% endfor %}',
  "{{ messages | map(attribute='content') | join }}",
  "{{ messages | selectattr('role', 'equalto', 'user') | list }}",
  "{{ strftime_now('%Y' * 1000) }}",
  '{{ strftime_now(messages) }}',
  '{{ 10 ** 400 }}',
  '{{ 1 // 0 }}',
  '{{ messages[99999999999] }}',
  '{{ messages[0].content[::0] }}',
  '{% filter upper %}{{ messages }}{% endfilter %}',
  `${'('.repeat(20_000)}x${')'.repeat(20_000)}`,
  `{{ ${'('.repeat(20_000)}1${')'.repeat(20_000)} }}`,
  `{{ ${'['.repeat(20_000)}${']'.repeat(20_000)} }}`,
  '{% if x %}'.repeat(20_000),
  `{{ 1${' + 1'.repeat(20_000)} }}`,
  `{{ ${'not '.repeat(50_000)}1 }}`,
  '{{ 1 }}'.repeat(100_000),
  '{'.repeat(1e6),
  ' '.repeat(5e6),
];

export function templateCases(seed: number, count: number): Case[] {
  const [{ json, config }] = tokenizers();
  const of = (template: string, name: string) => file(name, json, { ...config, chat_template: template });
  const made = TEMPLATES.map((template) => of(template, `template ${template.slice(0, 60)}`));
  const source = config['chat_template'] as string;
  const pieces = [source, ...TEMPLATES.filter((template) => template.length < 200)];
  const drawn = fc.sample(
    fc.oneof(
      mutatedBytes(new TextEncoder().encode(source)).map((bytes) => new TextDecoder().decode(bytes)),
      fc
        .array(fc.tuple(fc.constantFrom(...pieces), fc.nat(400), fc.nat(400)), { minLength: 1, maxLength: 5 })
        .map((cuts) =>
          cuts.map(([text, from, length]) => text.slice(from % text.length, (from % text.length) + length)).join(''),
        ),
    ),
    { seed, numRuns: Math.max(0, count - made.length) },
  );
  return [
    ...made,
    ...drawn.map((template, i) => of(template, `template ${i} of seed ${seed}: ${template.slice(0, 80)}`)),
  ];
}
