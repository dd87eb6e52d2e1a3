/**
 * Compares token ids with the Rust library's, for each kind of pre-tokenizer. test/fixtures/bpe/pretokenizers.json was made with tokenizers
 * 0.23.3. With FULL_TESTS=1, a Python with transformers and PEFT (TRL_PYTHON) computes the ids again, for more texts, and computes how
 * PEFT's initialisations change base weights. WRITE_IDS=1 stores the ids.
 */

import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { InputError } from '../../src/errors.ts';
import {
  loadCheckpoint,
  type ModelCheckpoint,
  saveCheckpoint,
  withTokenizer,
} from '../../src/model/checkpoint/checkpoint.ts';
import { parseAdapterConfig } from '../../src/model/lora/adapter.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { modelTokenizer } from '../../src/model/tokenizer/modelTokenizer.ts';
import { parseAsWritten, pythonTime } from '../../src/model/tokenizer/pythonText.ts';
import { ChatTemplate } from '../../src/model/tokenizer/template.ts';
import { rng } from '../random.ts';

const FIXTURE = 'test/fixtures/bpe/pretokenizers.json';
const { FULL_TESTS, TRL_PYTHON, WRITE_IDS } = process.env;

/**
 * Characters of the test texts: letters, numbers and white space of several kinds, ASCII and other punctuation, a symbol, a mark, a joiner,
 * an emoji.
 */
const CHARACTERS = [
  ...['a', '\u00e9', '1', '\u0664', '\u00bd', '\u2153', '\u00b2', '\u00b3', '\u2460', '\u2163', ' ', '\t', '\n'],
  ...['\u0085', '\u00a0', '\ufeff', '\u200d', '?', '!', '$', '_', "'", '\u0301', '\u3002', '\u{1f600}', '\u2581'],
];
const TEXTS = [
  '\u00bd\u2153 \u00b2 \u00b3\u2460',
  'a1\u00bd\u00b21 \u0664\u0664a?!?',
  ' \u0085a\ufeff\u00a0 a\u200da',
  "$_'?! a\u3002\u3002\u00e9\u0301 ",
  "\u{1f600}\u{1f600}a 1 '1\n\n a  a",
];

const split = (Regex: string, behavior: string, invert = false) => ({
  type: 'Split',
  pattern: { Regex },
  behavior,
  invert,
});
const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
const metaspace = { type: 'Metaspace', replacement: '\u2581', prepend_scheme: 'always', split: true };
const LLAMA3 =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const inSequence = (...pretokenizers: object[]) => ({ type: 'Sequence', pretokenizers });
const STEPS: object[] = [
  { type: 'Digits', individual_digits: true },
  { type: 'Digits', individual_digits: false },
  ...['Isolated', 'Contiguous', 'MergedWithNext', 'MergedWithPrevious', 'Removed'].map((behavior) => ({
    type: 'Punctuation',
    behavior,
  })),
  { type: 'Whitespace' },
  { type: 'WhitespaceSplit' },
  { type: 'FixedLength', length: 3 },
  metaspace,
  { ...metaspace, prepend_scheme: 'never' },
  { ...metaspace, prepend_scheme: 'first', split: false },
  split('\\s+|\\S+', 'Isolated'),
  split('\\w+|[^\\w\\s]+', 'Isolated', true),
  split('\\w+|[^\\w\\s]+', 'Removed', true),
  split('\\p{Nd}', 'MergedWithNext'),
  split('[\\p{N}!]', 'Contiguous'),
  { type: 'Split', pattern: { String: ' ' }, behavior: 'MergedWithPrevious', invert: false },
  { type: 'Split', pattern: { String: '?' }, behavior: 'Removed', invert: false },
  split(LLAMA3, 'Isolated'),
  inSequence({ type: 'WhitespaceSplit' }, { type: 'Digits', individual_digits: true }),
  byteLevel,
  inSequence({ type: 'Digits', individual_digits: true }, byteLevel), // SmolLM2's
  inSequence(split(LLAMA3, 'Isolated'), { ...byteLevel, use_regex: false }), // Llama 3's
];

/** Returns the character with which ByteLevel represents a byte. */
const byteNames = (() => {
  const isShown = (byte: number) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte !== 173);
  const hidden = Array.from({ length: 256 }, (_, byte) => byte).filter((byte) => !isShown(byte));
  return (byte: number) => String.fromCodePoint(isShown(byte) ? byte : 256 + hidden.indexOf(byte));
})();

/**
 * Returns a BPE tokenizer that merges any two characters that the pre-tokenizer does not separate. So its ids show where the pre-tokenizer
 * splits a text.
 */
function tokenizerWith(preTokenizer: object): object {
  const isByteLevel = JSON.stringify(preTokenizer).includes('"ByteLevel"');
  const bytes = [...new Set(CHARACTERS.flatMap((c) => [...new TextEncoder().encode(c)]))].map(byteNames);
  const pieces = isByteLevel ? bytes : CHARACTERS;
  const merges = pieces.flatMap((a) => pieces.map((b) => [a, b]));
  const vocab = Object.fromEntries([...pieces, ...merges.map(([a, b]) => a + b)].map((piece, id) => [piece, id]));
  const off = { dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null };
  const model = { type: 'BPE', ...off, fuse_unk: false, byte_fallback: false, ignore_merges: false, vocab, merges };
  return {
    ...{
      version: '1.0',
      truncation: null,
      padding: null,
      added_tokens: [],
      normalizer: null,
      post_processor: null,
      decoder: null,
    },
    pre_tokenizer: preTokenizer,
    model,
  };
}

const idsOf = (preTokenizer: object, texts: readonly string[]): number[][] => {
  const tokenizer = new ChatTokenizer(tokenizerWith(preTokenizer), { eos_token: 'a' });
  return texts.map((text) => tokenizer.encode(text));
};

const nameOf = (step: object) => JSON.stringify(step).slice(0, 100);

test('ids of every step are those of the Rust library, as stored', () => {
  const stored = JSON.parse(readFileSync(FIXTURE, 'utf8')) as { step: object; ids: number[][] }[];
  expect(stored.map(({ step }) => step)).toEqual(STEPS);
  for (const { step, ids } of stored) expect(idsOf(step, TEXTS), nameOf(step)).toEqual(ids);
});

test('a split that has no form of ours is refused, not read as another', () => {
  for (const step of [split('a|bc', 'MergedWithNext'), split('a|bc', 'Contiguous'), split('a', 'MergedWithNext', true)])
    expect(() => idsOf(step, [])).toThrow(
      new InputError(
        `tokenizer.json: "pre_tokenizer" splits by ${JSON.stringify(step.pattern.Regex)} with behavior "${step.behavior}"` +
          `${step.invert ? ', inverted' : ''}; allowed: "Isolated" or "Removed" with a pattern of several characters. Use the file of another model.`,
      ),
    );
});

const RUST = `
import json, sys
from tokenizers import Tokenizer
asked = json.load(open(sys.argv[1]))
print(json.dumps([[Tokenizer.from_str(json.dumps(t)).encode(x, add_special_tokens=False).ids for x in asked["texts"]] for t in asked["tokenizers"]]))`;

const PEFT = `
import json, sys, torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora.eva import initialize_lora_eva_weights
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
sizes = dict(vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)
changed = {}
for init in [True, False, "gaussian", "orthogonal", "eva", "pissa", "pissa_niter_2", "olora"]:
    model = LlamaForCausalLM(LlamaConfig(**sizes))
    before = model.model.layers[0].self_attn.q_proj.weight.detach().clone()
    peft = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=init))
    if init == "eva":
        data = [dict(input_ids=torch.randint(0, 32, (4, 8)), attention_mask=torch.ones(4, 8, dtype=torch.long)) for _ in range(4)]
        initialize_lora_eva_weights(peft, data, show_progress_bar=False)
    after = peft.base_model.model.model.layers[0].self_attn.q_proj.base_layer.weight
    changed[json.dumps(init)] = not torch.equal(before, after)
print(json.dumps(changed))`;

const TRANSFORMERS = `
import json, sys
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
folder, asked = sys.argv[1], json.loads(sys.argv[2])
config, model, tokenizer = (c.from_pretrained(folder) for c in (AutoConfig, AutoModelForCausalLM, AutoTokenizer))
texts = [tokenizer.apply_chat_template(asked["messages"], tools=t, tokenize=False, add_generation_prompt=True) for t in (None, asked["tools"])]
print(json.dumps(dict(ends=model.generation_config.eos_token_id, vocab=config.vocab_size, hidden=config.hidden_size, texts=texts, dtype=str(model.dtype))))`;

const CONVERSATION =
  '[{"role": "user", "content": " \\n hi \\n"}, {"role": "assistant", "content": null, "tool_calls": [{"function": ' +
  '{"arguments": {"f": 1.0, "e": 1e5, "small": 1e-7, "id": 12345678901234567890, "yes": true, "none": null, "q": "it\'s \\u00e9"}}}]}]';
const ARGUMENTS = 'messages[1].tool_calls[0].function.arguments';
/** Templates, and what Jinja2 writes for them in transformers 5.24. */
const WRITTEN: [template: string, text: string][] = [
  [
    `{{ ${ARGUMENTS} | tojson }}`,
    '{"f": 1.0, "e": 100000.0, "small": 1e-07, "id": 12345678901234567890, "yes": true, "none": null, "q": "it\'s \u00e9"}',
  ],
  [
    `{{ ${ARGUMENTS} }}`,
    "{'f': 1.0, 'e': 100000.0, 'small': 1e-07, 'id': 12345678901234567890, 'yes': True, 'none': None, 'q': \"it's \u00e9\"}",
  ],
  [
    `{% for k, v in ${ARGUMENTS} | items %}{{ k ~ '=' ~ v }};{% endfor %}`,
    "f=1.0;e=100000.0;small=1e-07;id=12345678901234567890;yes=True;none=None;q=it's \u00e9;",
  ],
  [
    `{{ ${ARGUMENTS}.f + 1 }} {{ ${ARGUMENTS}.yes | string }} {{ ${ARGUMENTS}.f is number }} {{ ${ARGUMENTS}.f is mapping }}`,
    '2.0 True True False',
  ],
  [
    "{{ messages[0].content.strip('\\n') }}|{{ messages[0].content.lstrip(' ') }}|{{ 'xxaxx'.rstrip('x') }}|{{ messages[0].content | trim }}",
    ' \n hi |\n hi \n|xxa|hi',
  ],
  ["{{ '\u0085\u001c a\ufeff'.strip() }}", 'a\ufeff'],
  [
    '{{ messages[1].content }}{{ none }}{{ undefined_name }}|{{ true }} {{ 1.0 }} {{ [1, 2.0, none, "a"] }}',
    "NoneNone|True 1.0 [1, 2.0, None, 'a']",
  ],
  [
    '{% for i in range(5) %}{{ i }}{% if i == 1 %}a{% continue %}{% endif %}{% if i == 3 %}b{% break %}{% endif %},{% endfor %}.',
    '0,1a2,3b.',
  ],
  [
    "{{ -5 % 3 }} {{ '1' == 1 }} {{ [1] == [1.0] }} {{ {'a': [1]} != {'a': [1]} }} {{ undefined_name == none }}",
    '1 False True False False',
  ],
  [
    "{{ {'b': [], 'a': {'c': 0.5}} | tojson(indent=2, sort_keys=true) }} {{ '\u00e9' | tojson(ensure_ascii=true) }}",
    '{\n  "a": {\n    "c": 0.5\n  },\n  "b": []\n} "\\u00e9"',
  ],
  [
    "{{ 'h\u00e9\u{1f44d}x' | length }} {{ 'a\u{1f44d}b'[1] }}{{ 'a\u{1f44d}'[-2] }} {{ 'hELLO' | capitalize }} {{ 'hELLO'.capitalize() }}",
    '4 \u{1f44d}a Hello Hello',
  ],
  [
    "{{ [1, none, true, 1.0] | join(',') }} {{ (1, 'a') }} {{ (1, 2) | tojson }} {{ [[1]] | join }}",
    "1,None,True,1.0 (1, 'a') [1, 2] [1]",
  ],
  [
    "{% for c in 'a\u{1f44d}' %}[{{ c }}]{% endfor %}{% for c in messages[0].nothing %}x{% endfor %}{{ messages[0].nothing is iterable }}|{{ [] | first }}|",
    '[a][\u{1f44d}]True||',
  ],
  ["{{ {'a': [1]} | tojson(indent='\t') }}", '{\n\t"a": [\n\t\t1\n\t]\n}'],
];
/** Templates that Jinja2 refuses as well, and some that would be written differently here. */
const REFUSED: [template: string, reason: string][] = [
  ['{{ messages[0].x.y }}', 'a part of an undefined value'],
  ['{{ messages[9].role is defined }}', 'a part of an undefined value'],
  ["{{ 'a' + 1 }}", 'adds a text and another value'],
  ["{{ [1] + 'a' }}", 'adds a text and another value'],
  ['{{ undefined_name | tojson }}', 'an undefined value as JSON'],
  ["{{ 'abc'.startswith('b', 1) }}", 'calls startswith with 2 values'],
  ["{{ 'a'.rjust(3) }}", 'calls rjust(), which is not known here'],
  ["{{ strftime_now('%U') }}", 'the time as %U'],
  ["{{ messages | join(',', attribute='role') }}", 'joins an attribute'],
];

test.each(WRITTEN)('%s is written as Jinja2 writes it', (template, text) => {
  expect(new ChatTemplate(template).render({ messages: parseAsWritten(CONVERSATION) })).toBe(text);
});

test.each(REFUSED)('%s is refused', (template, reason) => {
  const render = () => new ChatTemplate(template).render({ messages: parseAsWritten(CONVERSATION) });
  expect(render).toThrow(InputError);
  expect(render).toThrow('The chat template stops at this conversation: it ');
  expect(render).toThrow(reason);
});

test('the time is written as by strftime', () => {
  const time = new Date(2026, 0, 5, 0, 7, 9);
  const format = '%A %a, %B %b %-d %d %e %j %-j, %Y %y %m; %H:%M:%S %I %-I %p %%';
  expect(pythonTime(format, time)).toBe('Monday Mon, January Jan 5 05  5 005 5, 2026 26 01; 00:07:09 12 12 AM %');
  expect(pythonTime('%j %p %I', new Date(2024, 11, 31, 23))).toBe('366 PM 11');
});

/** Saves a copy of the shipped model with another program's generation_config.json and list of templates. */
async function savedCopy(
  ends: number[],
  templates: object[],
): Promise<{ folder: string; checkpoint: ModelCheckpoint }> {
  const shipped = 'checkpoints/gsm8k-tool';
  const source = new Map(readdirSync(shipped).map((name) => [name, new Uint8Array(readFileSync(join(shipped, name)))]));
  const config = JSON.parse(readFileSync(join(shipped, 'tokenizer_config.json'), 'utf8')) as object;
  const bytes = (json: object) => new TextEncoder().encode(JSON.stringify(json));
  source.set('generation_config.json', bytes({ eos_token_id: ends }));
  source.set('tokenizer_config.json', bytes({ ...config, chat_template: templates }));
  const checkpoint = await loadCheckpoint(async (name) => source.get(name));
  const folder = mkdtempSync(join(tmpdir(), 'webgrpo-peers-'));
  for (const [name, content] of saveCheckpoint(checkpoint, 'BF16')) writeFileSync(join(folder, name), content);
  return { folder, checkpoint };
}

describe.skipIf(FULL_TESTS !== '1')('the libraries themselves (npm test -- --full)', () => {
  const candidates = [TRL_PYTHON, 'node_modules/.cache/webgrpo/trl/bin/python'];
  const found = candidates.find(
    (path) => path !== undefined && spawnSync(path, ['-c', 'import peft, transformers']).status === 0,
  );
  const none = 'no Python with transformers and PEFT: set TRL_PYTHON, or see CONTRIBUTING.md';
  const python = (code: string, ...args: string[]): unknown =>
    JSON.parse(execFileSync(found!, ['-c', code, ...args], { encoding: 'utf8', maxBuffer: 2 ** 28 }));

  test('tokenizers: the same ids for 300 random texts a step', (context) => {
    context.skip(found === undefined, none);
    const random = rng(7);
    const drawn = () => CHARACTERS[Math.floor(random.uniform() * CHARACTERS.length)];
    const more = Array.from({ length: 300 }, (_, i) => Array.from({ length: 1 + (i % 14) }, drawn).join(''));
    const texts = [...TEXTS, ...more];
    const file = join(mkdtempSync(join(tmpdir(), 'webgrpo-peers-')), 'asked.json');
    writeFileSync(file, JSON.stringify({ tokenizers: STEPS.map(tokenizerWith), texts }));
    const said = python(RUST, file) as number[][][];
    if (WRITE_IDS === '1')
      writeFileSync(
        FIXTURE,
        `[\n${said.map((ids, i) => JSON.stringify({ step: STEPS[i], ids: ids.slice(0, TEXTS.length) })).join(',\n')}\n]\n`,
      );
    for (const [i, step] of STEPS.entries()) {
      const ours = idsOf(step, texts);
      const different = texts.filter((_, t) => JSON.stringify(ours[t]) !== JSON.stringify(said[i][t]));
      expect(different.slice(0, 5), `${nameOf(step)}: ${different.length} differ`).toEqual([]);
    }
  });

  test('transformers: the texts of templates', (context) => {
    context.skip(found === undefined, none);
    const code =
      'import json, sys; from transformers.utils.chat_template_utils import _compile_jinja_template as compiled; ' +
      'print(json.dumps([compiled(t).render(messages=json.loads(sys.argv[1])) for t in json.loads(sys.argv[2])]))';
    const templates = WRITTEN.map(([template]) => template);
    expect(python(code, CONVERSATION, JSON.stringify(templates))).toEqual(WRITTEN.map(([, text]) => text));
  });

  test('PEFT: an adapter is refused if its initialisation changes the base', (context) => {
    context.skip(found === undefined, none);
    for (const [init, changes] of Object.entries(python(PEFT) as Record<string, boolean>)) {
      const read = () =>
        parseAdapterConfig({ peft_type: 'LORA', r: 4, lora_alpha: 8, init_lora_weights: JSON.parse(init) as unknown });
      if (changes) expect(read, init).toThrow('"init_lora_weights" is');
      else expect(read, init).not.toThrow();
    }
  });

  test('transformers: a saved model has its end tokens, its sizes and its two templates', async (context) => {
    context.skip(found === undefined, none);
    const turns =
      '{{ tools is none }}{{ documents is none }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}';
    const { folder, checkpoint } = await savedCopy(
      [0, 2],
      ['default', 'tool_use'].map((name) => ({ name, template: `${name}\r\n${turns}` })),
    );
    const messages = [{ role: 'user', content: 'hi\r\n' }];
    const tools = [{ type: 'function', function: { name: 'f', description: 'F', parameters: { type: 'object' } } }];
    const tokenizer = modelTokenizer(withTokenizer(folder, checkpoint));
    expect(python(TRANSFORMERS, folder, JSON.stringify({ messages, tools }))).toEqual({
      ends: [0, 2],
      vocab: checkpoint.config.vocabSize,
      hidden: checkpoint.config.hiddenSize,
      texts: [{}, { tools }].map((options) => tokenizer.applyChatTemplate(messages, options)),
      dtype: 'torch.bfloat16',
    });
    expect(tokenizer.eosTokenIds).toEqual(expect.arrayContaining([0, 2]));
  });
});
