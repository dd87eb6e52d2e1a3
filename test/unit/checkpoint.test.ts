import { describe, expect, test, vi } from 'vitest';
import { filesOf, loadCheckpoint, saveCheckpoint } from '../../src/model/checkpoint/checkpoint.ts';
import type { ModelCheckpoint, CheckpointSource } from '../../src/model/checkpoint/checkpoint.ts';
import { fetchCheckpoint } from '../../src/model/checkpoint/fetch.ts';
import { openCheckpoint } from '../../src/model/checkpoint/open.ts';
import { parseModelConfig } from '../../src/model/config.ts';
import { InputError } from '../../src/errors.ts';
import { initWeights } from '../../src/model/params.ts';
import { LORA_MODULES } from '../../src/model/lora/config.ts';
import { adapterFiles } from '../../src/runs/checkpointFolder.ts';
import { writeSafetensors } from '../../src/model/checkpoint/safetensors.ts';

const CONFIG = parseModelConfig({
  architectures: ['Qwen2ForCausalLM'],
  vocab_size: 13,
  hidden_size: 8,
  intermediate_size: 12,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  tie_word_embeddings: true,
});
const LORA = { rank: 2, alpha: 4, dropout: 0, useRslora: false, targetModules: LORA_MODULES, seed: 0 };
const weights = () => initWeights(CONFIG, 1);
const from =
  (files: Map<string, Uint8Array>): CheckpointSource =>
  (path) =>
    Promise.resolve(files.get(path));
const text = (value: string) => new TextEncoder().encode(value);

/** Returns the files of a saved checkpoint with some replaced; undefined removes a file. */
function saved(changes: Record<string, Uint8Array | undefined> = {}): Map<string, Uint8Array> {
  const files: Map<string, Uint8Array> = saveCheckpoint({ config: CONFIG, weights: weights() });
  for (const [name, bytes] of Object.entries(changes)) {
    if (bytes) files.set(name, bytes);
    else files.delete(name);
  }
  return files;
}

const withTensors = (change: (tensors: ReturnType<typeof weights>) => void) => {
  const tensors = weights();
  change(tensors);
  return saved({ 'model.safetensors': writeSafetensors(tensors) });
};

async function refusal(files: Map<string, Uint8Array>): Promise<string> {
  const error: unknown = await loadCheckpoint(from(files)).catch((e: unknown) => e);
  expect(error).toBeInstanceOf(InputError);
  return (error as InputError).message;
}

test('save, then load: the same checkpoint', async () => {
  const checkpoint: ModelCheckpoint = {
    config: CONFIG,
    weights: weights(),
    tokenizerJson: { version: '1.0', model: { type: 'BPE' } },
    tokenizerConfigJson: { eos_token: '<|im_end|>', chat_template: '{{ x }}' },
  };
  const files = saveCheckpoint(checkpoint);
  expect([...files.keys()]).toEqual(['config.json', 'model.safetensors', 'tokenizer.json', 'tokenizer_config.json']);
  const { sourceFiles, ...loaded } = await loadCheckpoint(from(files));
  expect(loaded).toEqual(checkpoint);
  expect([...sourceFiles!.keys()]).toEqual(['config.json', 'tokenizer.json', 'tokenizer_config.json']);
  expect(Object.keys(await loadCheckpoint(from(saved())))).toEqual(['config', 'sourceFiles', 'weights']);
});

test('a chat template in a separate file', async () => {
  const files = saved({ 'chat_template.jinja': text('hello'), 'tokenizer_config.json': text('{"eos_token":"e"}') });
  expect((await loadCheckpoint(from(files))).tokenizerConfigJson).toEqual({ eos_token: 'e', chat_template: 'hello' });
});

describe('files next to the weights', () => {
  /** The JSON is formatted and ordered as another program might write it. bos_token_id is null and eos_token_id a list on purpose. */
  const CONFIG_JSON = `{"model_type": "qwen2", "vocab_size": 13, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": true, "eos_token_id": [3, 4], "bos_token_id": null,
    "use_cache": true, "dtype": "bfloat16", "auto_map": {"AutoModel": "own.py"}, "my_key": {"a": 1}}`;
  const TOKENIZER =
    '{"version": "1.0",   "added_tokens": [{"id": 2, "content": "</s>"}], "model": {"vocab": {"a": 5}}}';
  const BESIDE = {
    'tokenizer.json': TOKENIZER,
    'tokenizer_config.json': '{"eos_token": "</s>",  "pad_token": {"content": "a"}}',
    'generation_config.json': '{"eos_token_id": [4, 7],  "temperature": 0.6}',
    'chat_template.jinja': 'hello\r\n',
    'special_tokens_map.json': '{"eos_token":  "</s>"}',
    'added_tokens.json': '{"</s>":  2}',
    'vocab.json': '{"a":  5}',
    'merges.txt': '#version: 0.2\n',
  };
  const source = (changes: Record<string, string | undefined> = {}) => {
    const all = Object.entries({ 'config.json': CONFIG_JSON, ...BESIDE, ...changes });
    return saved(
      Object.fromEntries(all.map(([name, content]) => [name, content === undefined ? content : text(content)])),
    );
  };
  const textOf = (files: ReadonlyMap<string, unknown>, name: string) =>
    new TextDecoder().decode(files.get(name) as Uint8Array);
  const jsonOf = (files: ReadonlyMap<string, unknown>) =>
    JSON.parse(textOf(files, 'config.json')) as Record<string, unknown>;

  test('end tokens of config.json and generation_config.json', async () => {
    expect((await loadCheckpoint(from(source()))).config.eosTokenIds).toEqual([3, 4, 7]);
    const only = source({
      'generation_config.json': '{"eos_token_id": 9}',
      'config.json': CONFIG_JSON.replace('[3, 4]', 'null'),
    });
    expect((await loadCheckpoint(from(only))).config.eosTokenIds).toEqual([9]);
    const none = source({ 'generation_config.json': '{"eos_token_id": null}' });
    expect((await loadCheckpoint(from(none))).config.eosTokenIds).toEqual([3, 4]);
  });

  test.each([
    ['{"eos_token_id": 13}', 'generation_config.json: "eos_token_id" is 13; allowed: a token id from 0 to 12'],
    ['{"eos_token_id": "4"}', 'generation_config.json: "eos_token_id" is "4"; allowed'],
    ['[4]', 'generation_config.json must hold a JSON object.'],
    ['{"eos', 'generation_config.json is not JSON'],
  ])('generation_config.json %s', async (json, message) =>
    expect(await refusal(source({ 'generation_config.json': json }))).toContain(message),
  );

  test('is saved again byte for byte, config.json too but for the dtype', async () => {
    const plain = CONFIG_JSON.replace(', "auto_map": {"AutoModel": "own.py"}', '');
    const checkpoint = await loadCheckpoint(from(source({ 'config.json': plain })));
    const files = saveCheckpoint(checkpoint, 'F16');
    for (const [name, content] of Object.entries(BESIDE)) expect(textOf(files, name), name).toBe(content);
    expect(textOf(files, 'config.json')).toBe(plain.replace('bfloat16', 'float16'));
    expect(textOf(saveCheckpoint(checkpoint, 'BF16'), 'config.json')).toBe(plain);
    expect((await loadCheckpoint(from(files))).config).toEqual(checkpoint.config);
    const unnamed = plain.replace(' "dtype": "bfloat16",', '');
    const saveUnnamed = async (dtype?: 'BF16') =>
      saveCheckpoint(await loadCheckpoint(from(source({ 'config.json': unnamed }))), dtype);
    expect(textOf(await saveUnnamed(), 'config.json')).toBe(unnamed); // float32 is what transformers takes it for
    expect(jsonOf(await saveUnnamed('BF16'))).toEqual({ ...(JSON.parse(unnamed) as object), torch_dtype: 'bfloat16' });
  });

  test('auto_map goes without its Python files, and a text "dtype" deeper in config.json stays', async () => {
    const nested = CONFIG_JSON.replace('{"a": 1}', '{"dtype": "int8"}');
    const json = jsonOf(saveCheckpoint(await loadCheckpoint(from(source({ 'config.json': nested })))));
    expect(json).not.toHaveProperty('auto_map');
    expect(json).toMatchObject({ dtype: 'float32', my_key: { dtype: 'int8' } });
  });

  test('a source that names no end token gets those of its tokenizer', async () => {
    const none = CONFIG_JSON.replace('"eos_token_id": [3, 4]', '"eos_token_id": null');
    const files = source({ 'config.json': none, 'generation_config.json': undefined });
    const json = jsonOf(saveCheckpoint(await loadCheckpoint(from(files))));
    expect(json).toMatchObject({ eos_token_id: 2, pad_token_id: 5, my_key: { a: 1 } });
  });

  test('every other file of a folder that can be listed, but for weights and what is about a run', async () => {
    const others = {
      LICENSE: 'Apache 2.0',
      'README.md': '# m\r\n',
      'tokenizer.model': '\u0000\u0001',
      'chat_template.json': '{}',
      'own.py': 'class A: pass',
    };
    const left = {
      ...{ 'train.jsonl': '{}', 'trainer_state.json': '{}', 'optimizer.pt': 'x', 'model.gguf': 'x' },
      ...{ 'pytorch_model.bin.index.json': '{}', 'adapter_config.json': '{}', '.gitattributes': 'x', 'a/b.json': '{}' },
    };
    const all = source({ ...others, ...left });
    const listed = { ...filesOf(from(all)), names: async () => [...all.keys(), 'folder.json'] };
    const { weights: _, ...opened } = await openCheckpoint(listed);
    const files = saveCheckpoint({ ...opened, weights: weights() });
    for (const [name, content] of Object.entries({ ...BESIDE, ...others }))
      expect(textOf(files, name), name).toBe(content);
    const names = ['config.json', 'model.safetensors', ...Object.keys(BESIDE), ...Object.keys(others)];
    expect([...files.keys()].sort()).toEqual(names.sort());
    expect(jsonOf(files)).toHaveProperty('auto_map'); // own.py is there
    const renamed = saveCheckpoint({ ...opened, weights: weights(), tokenizerJson: { version: '2' } });
    expect(renamed.has('tokenizer.model')).toBe(false);
    expect(renamed.has('LICENSE')).toBe(true);
  });

  test('files are kept next to an adapter too, except config.json', async () => {
    const { weights: _, ...base } = await loadCheckpoint(from(source()));
    const adapter = { lora: { ...LORA }, tensors: new Map(), baseModel: 'org/base' };
    const trainer = { state: { step: 1, problems: 1, updates: 1 }, weights: new Map(), optimizer: new Map() };
    const files = adapterFiles(adapter, base, trainer);
    for (const [name, content] of Object.entries(BESIDE)) expect(textOf(files, name), name).toBe(content);
    expect(files.has('config.json')).toBe(false);
  });

  test('a template or tokenizer that was replaced is saved, and nothing that contradicts it', async () => {
    const checkpoint = await loadCheckpoint(from(source()));
    const templated = { ...checkpoint.tokenizerConfigJson, chat_template: 'mine' };
    const other = saveCheckpoint({ ...checkpoint, tokenizerConfigJson: templated });
    expect(other.has('chat_template.jinja')).toBe(false);
    expect(JSON.parse(textOf(other, 'tokenizer_config.json'))).toEqual(templated);
    expect(textOf(other, 'special_tokens_map.json')).toBe(BESIDE['special_tokens_map.json']);
    const renamed = saveCheckpoint({
      ...checkpoint,
      tokenizerConfigJson: { eos_token: 'a' },
      tokenizerJson: { version: '2' },
    });
    const left = [
      'config.json',
      'model.safetensors',
      'generation_config.json',
      'tokenizer.json',
      'tokenizer_config.json',
    ];
    expect([...renamed.keys()].sort()).toEqual(left.sort());
  });

  test('a fresh model names the ids of its tokenizer, so that generate() ends', async () => {
    const { sourceFiles: _, ...fresh } = await loadCheckpoint(from(source()));
    const json = jsonOf(saveCheckpoint({ ...fresh, config: CONFIG }));
    expect(json).toMatchObject({ eos_token_id: 2, pad_token_id: 5 });
    expect(json).not.toHaveProperty('bos_token_id');
  });

  test('a second template in a separate file is read, and saved with the first', async () => {
    const files = source({ 'additional_chat_templates/tool_use.jinja': 'tools' });
    const checkpoint = await loadCheckpoint(from(files));
    const chat_template = [
      { name: 'default', template: 'hello\r\n' },
      { name: 'tool_use', template: 'tools' },
    ];
    expect(checkpoint.tokenizerConfigJson).toMatchObject({ chat_template });
    const again = await loadCheckpoint(from(saveCheckpoint(checkpoint)));
    expect(again.tokenizerConfigJson).toEqual(checkpoint.tokenizerConfigJson);
  });
});

/** Returns the saved weights in two shards with an index. */
function sharded(): Map<string, Uint8Array> {
  const all = [...weights()];
  const parts = [all.slice(0, 5), all.slice(5)];
  const files = saved({ 'model.safetensors': undefined });
  const map: Record<string, string> = {};
  for (const [i, part] of parts.entries()) {
    const name = `model-0000${i + 1}-of-00002.safetensors`;
    files.set(name, writeSafetensors(new Map(part)));
    for (const [tensor] of part) map[tensor] = name;
  }
  return files.set('model.safetensors.index.json', text(JSON.stringify({ metadata: {}, weight_map: map })));
}

test('shards', async () => {
  expect((await loadCheckpoint(from(sharded()))).weights).toEqual(weights());
  const files = sharded();
  files.delete('model-00002-of-00002.safetensors');
  expect(await refusal(files)).toBe(
    'The checkpoint has no model-00002-of-00002.safetensors, which model.safetensors.index.json names. Download it again.',
  );
  files.set('model-00002-of-00002.safetensors', files.get('model-00001-of-00002.safetensors')!);
  expect(await refusal(files)).toBe(
    'model-00002-of-00002.safetensors holds the tensor "model.embed_tokens.weight", which ' +
      'model.safetensors.index.json places in model-00001-of-00002.safetensors.',
  );
  files.set('model-00002-of-00002.safetensors', writeSafetensors(new Map()));
  expect(await refusal(files)).toContain(
    'model-00002-of-00002.safetensors has no "model.layers.0.self_attn.v_proj.weight"',
  );
});

test('a tied head may be stored too, if it is the embedding', async () => {
  const table = weights().get('model.embed_tokens.weight')!;
  const files = withTensors((t) => t.set('lm_head.weight', table));
  expect((await loadCheckpoint(from(files))).weights).toEqual(weights());
  const other = withTensors((t) => t.set('lm_head.weight', { shape: [13, 8], data: table.data.map((x) => x + 1) }));
  expect(await refusal(other)).toBe(
    'model.safetensors: "lm_head.weight" differs from the embedding, but config.json says "tie_word_embeddings": true.',
  );
});

const UP = 'model.layers.1.mlp.up_proj.weight';

const REFUSED: [string, () => Map<string, Uint8Array>, string][] = [
  [
    'no config',
    () => saved({ 'config.json': undefined }),
    'The checkpoint has no config.json. Give a folder in Hugging Face format.',
  ],
  ['a config that is a list', () => saved({ 'config.json': text('[]') }), 'config.json must hold a JSON object.'],
  [
    'no weights',
    () => saved({ 'model.safetensors': undefined }),
    'The checkpoint has neither model.safetensors nor model.safetensors.index.json. Convert it to safetensors.',
  ],
  [
    'an index without its map',
    () => saved({ 'model.safetensors': undefined, 'model.safetensors.index.json': text('{}') }),
    'model.safetensors.index.json has no "weight_map" from tensor names to .safetensors files beside it.',
  ],
  [
    'a missing tensor',
    () => withTensors((t) => t.delete(UP)),
    `model.safetensors has no "${UP}" [12, 8]. It has 25 tensors, e.g. "model.embed_tokens.weight". Is this a Qwen2 checkpoint?`,
  ],
  [
    'a tensor of another shape',
    () => withTensors((t) => t.set(UP, { shape: [8, 12], data: new Float32Array(96) })),
    `model.safetensors: tensor "${UP}" has shape [8, 12], but the config asks for [12, 8]. Are config.json and the weights of one model?`,
  ],
  [
    'an extra tensor',
    () => withTensors((t) => t.set('model.layers.2.x', { shape: [1], data: new Float32Array(1) })),
    'model.safetensors has "model.layers.2.x" [1], which a Qwen2ForCausalLM of this config does not use. Is the config of another model?',
  ],
  [
    'NaN',
    () => withTensors((t) => t.get(UP)!.data.fill(NaN, 95)),
    `model.safetensors: tensor "${UP}" holds NaN at element 95. The weights are damaged.`,
  ],
  [
    'infinity',
    () => withTensors((t) => t.get(UP)!.data.fill(-Infinity, 0, 1)),
    `model.safetensors: tensor "${UP}" holds -Infinity at element 0. The weights are damaged.`,
  ],
];

test.each(REFUSED)('refuses %s', async (_, files, message) => {
  expect(await refusal(files())).toBe(message);
});

test('a broken JSON file is named, and other failures pass through', async () => {
  expect(await refusal(saved({ 'tokenizer.json': text('{') }))).toMatch(/^tokenizer\.json is not JSON \(.+\)\.$/);
  await expect(loadCheckpoint(() => Promise.reject(new Error('disk on fire')))).rejects.toThrow('disk on fire');
});

test('saving refuses what loading would', () => {
  const tensors = weights();
  tensors.get(UP)!.data[3] = NaN;
  expect(() => saveCheckpoint({ config: CONFIG, weights: tensors })).toThrow(
    `The model to save: tensor "${UP}" holds NaN at element 3. The weights are damaged.`,
  );
});

const PAGE = '<!DOCTYPE html>\n<html lang="en"></html>\n';

test('an HTML page is neither template nor JSON', async () => {
  expect(await refusal(saved({ 'chat_template.jinja': text(PAGE) }))).toBe(
    'chat_template.jinja is an HTML page: the server has no such file and answered with its start page. Check the address. ' +
      'A program can read the checkpoint with fetchCheckpoint(), or let its file reader return undefined for such an answer.',
  );
  expect(await refusal(saved({ 'tokenizer.json': text('\n<html>') }))).toMatch(/^tokenizer\.json is an HTML page: /);
});

/** Starts a server that answers requests for missing files with 404, or with its start page, as development servers do. */
function serve(files: Map<string, Uint8Array>, missing: 'page' | 404): void {
  vi.stubGlobal('fetch', async (url: string) => {
    const bytes = files.get(url.replace('http://host/model/', ''));
    if (bytes) return new Response(new Uint8Array(bytes));
    return missing === 404
      ? new Response('', { status: 404 })
      : new Response(PAGE, { headers: { 'content-type': 'text/html' } });
  });
}

test('fetchCheckpoint: from a folder or a table of files, the tokenizer required, a start page refused by name and address', async () => {
  const tokenizer = { 'tokenizer.json': text('{}'), 'tokenizer_config.json': text('{"eos_token":"e"}') };
  const message = (from: Parameters<typeof fetchCheckpoint>[0]) =>
    fetchCheckpoint(from).then(
      () => 'loaded',
      (error: unknown) => (error as Error).message,
    );
  try {
    for (const missing of ['page', 404] as const) {
      serve(saved({ ...tokenizer, 'generation_config.json': text('{"eos_token_id": 12}') }), missing);
      const loaded = await fetchCheckpoint('http://host/model/');
      expect(loaded.config).toEqual({ ...CONFIG, eosTokenIds: [12] });
      expect(loaded.tokenizerConfigJson).toEqual({ eos_token: 'e' });
    }
    const table = [...saved(tokenizer).keys()].map((file) => [file, new URL(`http://host/model/${file}`)] as const);
    expect((await fetchCheckpoint(Object.fromEntries(table))).config).toEqual(CONFIG);
    expect(await message({ 'config.json': 'http://host/model/config.json' })).toMatch(
      /has neither model\.safetensors nor/,
    );
    serve(saved(), 404);
    expect(await message('http://host/model')).toBe(
      'http://host/model has no tokenizer.json and tokenizer_config.json. Copy them next to the weights.',
    );
    serve(new Map(), 'page');
    expect(await message('http://host/model')).toBe(
      "http://host/model/config.json is an HTML page and not the checkpoint's config.json: the server has no such file and answers with its " +
        'start page. Put the checkpoint where the server finds it (Vite: the folder public/), or correct the address.',
    );
    vi.stubGlobal('fetch', async () => new Response('', { status: 503 }));
    expect(await message('http://host/model')).toBe(
      'http://host/model/config.json could not be fetched: the server answered 503.',
    );
    vi.stubGlobal('fetch', () => Promise.reject(new TypeError('fetch failed')));
    const failed = 'config.json could not be fetched (TypeError: fetch failed).';
    expect(await message('http://host/model')).toBe(`http://host/model/${failed} Check the address.`);
    expect(await message({ 'config.json': 'file:///model/config.json' })).toBe(
      `file:///model/${failed} In Node, read it with readCheckpoint() of "webgrpo/node".`,
    );
  } finally {
    vi.unstubAllGlobals();
  }
});
