import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { merge } from '../../src/cli/commands/merge.ts';
import { exportGguf } from '../../src/cli/export/gguf.ts';
import { loadModelFiles, loadWithAdapter, openWithAdapter } from '../../src/cli/run/checkpoints.ts';
import { noteBase } from '../../src/cli/run/resume.ts';
import {
  type Adapter,
  loadAdapter,
  mergeAdapter,
  parseAdapterConfig,
  saveAdapter,
} from '../../src/model/lora/adapter.ts';
import { initLora, loraModules, loraScale, type LoraConfig, peftName } from '../../src/model/lora/weights.ts';
import { initWeights } from '../../src/model/params.ts';
import { loraMerge } from '../../src/extensions/verify/reference/ops.ts';
import { readSafetensors } from '../../src/model/checkpoint/safetensors.ts';
import { rng } from '../random.ts';
import { TINY_CONFIG as config } from '../tinyConfig.ts';

const lora: LoraConfig = {
  rank: 2,
  alpha: 3,
  dropout: 0.1,
  useRslora: true,
  targetModules: loraModules(['q_proj', 'up_proj']),
  seed: 0,
};

function example(): Adapter {
  const r = rng(3);
  const tensors = new Map(
    [...initLora(config, lora)].map(([name, { shape, data }]) => [name, { shape, data: r.normals(data.length) }]),
  );
  return { lora, tensors, baseModel: 'models/base' };
}
const sourceOf = (files: Map<string, Uint8Array>) => async (name: string) => files.get(name);

test('what is saved has PEFT’s files and names, and loads again', async () => {
  const files = saveAdapter(example());
  expect([...files.keys()]).toEqual(['adapter_config.json', 'adapter_model.safetensors']);
  const json = JSON.parse(new TextDecoder().decode(files.get('adapter_config.json'))) as object;
  expect(json).toMatchObject({ peft_type: 'LORA', task_type: 'CAUSAL_LM', r: 2, lora_alpha: 3, lora_dropout: 0.1 });
  expect(json).toMatchObject({ use_rslora: true, target_modules: ['q_proj', 'up_proj'], bias: 'none' });
  const tensors = readSafetensors(files.get('adapter_model.safetensors')!);
  expect(tensors.get('base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight')!.shape).toEqual([2, 6]);
  expect(tensors.get('base_model.model.model.layers.1.mlp.up_proj.lora_B.weight')!.shape).toEqual([7, 2]);
  expect(await loadAdapter(sourceOf(files), config)).toEqual(example());
});

test('merged weights are W + scale B A, the rest is untouched', () => {
  const weights = initWeights(config, 1);
  const adapter = example();
  const merged = mergeAdapter(config, weights, adapter);
  const half = (which: 'A' | 'B') => Float64Array.from(adapter.tensors.get(peftName(1, 'mlp.up_proj', which))!.data);
  const name = 'model.layers.1.mlp.up_proj.weight';
  const base = Float64Array.from(weights.get(name)!.data);
  const want = loraMerge(base, half('A'), half('B'), 6, loraScale(lora));
  expect(loraScale(lora)).toBeCloseTo(3 / Math.sqrt(2), 12);
  merged.get(name)!.data.forEach((value, i) => expect(Math.abs(value - want[i])).toBeLessThan(1e-6));
  const touched = [...merged].filter(([key, tensor]) => tensor !== weights.get(key)).map(([key]) => key);
  expect(touched).toHaveLength(4);
  expect(touched).toContain('model.layers.0.self_attn.q_proj.weight');
});

test('what PEFT writes of a plain adapter is read, also by a later version with more fields that are off', () => {
  const plain = { peft_type: 'LORA', r: 4, lora_alpha: 8, task_type: 'CAUSAL_LM', peft_version: '0.21.2' };
  const off = { bias: 'none', use_dora: false, layers_to_transform: null, rank_pattern: {}, modules_to_save: [] };
  const without = { target_modules: '.*proj', exclude_modules: ['lm_head'], megatron_core: 'megatron.core' };
  const more = {
    qalora_group_size: 16,
    loftq_config: {},
    eva_config: { rho: 2 },
    use_later: false,
    later_config: null,
  };
  for (const init_lora_weights of [true, false, 'gaussian', 'eva', 'orthogonal', undefined])
    expect(parseAdapterConfig({ ...plain, ...off, ...without, ...more, init_lora_weights }).lora.rank).toBe(4);
});

test('the base is of a revision: read as org/name@revision, and written as PEFT names it', () => {
  const read = (json: object) => parseAdapterConfig({ peft_type: 'LORA', r: 4, lora_alpha: 8, ...json }).baseModel;
  expect(read({ base_model_name_or_path: 'org/base', revision: 'v2' })).toBe('org/base@v2');
  expect(read({ base_model_name_or_path: 'org/base', revision: null })).toBe('org/base');
  expect(read({ base_model_name_or_path: '/disk/base', revision: 'v2' })).toBe('/disk/base');
  const saved = saveAdapter({ ...example(), baseModel: 'org/base@v2' }).get('adapter_config.json');
  const json = JSON.parse(new TextDecoder().decode(saved)) as object;
  expect(json).toMatchObject({ base_model_name_or_path: 'org/base', revision: 'v2' });
  expect(read(json)).toBe('org/base@v2');
});

describe('refused with one error message', () => {
  const peft = { peft_type: 'LORA', r: 4, lora_alpha: 8, target_modules: ['q_proj'] };
  test.each([
    [{ ...peft, peft_type: 'IA3' }, 'adapter_config.json: "peft_type" is "IA3"; supported: "LORA".'],
    [{ ...peft, use_dora: true }, '"use_dora" is true, which is not supported. Train the adapter without it.'],
    [{ ...peft, modules_to_save: ['lm_head'] }, '"modules_to_save" is ["lm_head"], which is not supported'],
    [{ ...peft, rank_pattern: { q_proj: 8 } }, '"rank_pattern" is {"q_proj":8}, which is not supported'],
    [
      { ...peft, init_lora_weights: 'pissa' },
      '"init_lora_weights" is "pissa", by which PEFT may change the base as well',
    ],
    [
      { ...peft, init_lora_weights: 'pissa_niter_4' },
      'save_pretrained(FOLDER, path_initial_model_for_weight_conversion=',
    ],
    [{ ...peft, init_lora_weights: 'OLoRA' }, '"init_lora_weights" is "OLoRA"'],
    [{ ...peft, init_lora_weights: 'corda' }, '"init_lora_weights" is "corda"'],
    [{ ...peft, init_lora_weights: 'loftq' }, 'merge_and_unload()'],
    [{ ...peft, init_lora_weights: 'lora_ga' }, '"init_lora_weights" is "lora_ga"'],
    [{ ...peft, init_lora_weights: 1 }, '"init_lora_weights" is 1'],
    [{ ...peft, use_qalora: true }, '"use_qalora" is true, which is not supported'],
    [{ ...peft, alora_invocation_tokens: [5, 7] }, '"alora_invocation_tokens" is [5,7], which is not supported'],
    [{ ...peft, arrow_config: { top_k: 2 } }, '"arrow_config" is {"top_k":2}, which is not supported'],
    [{ ...peft, layers_to_transform: 0 }, '"layers_to_transform" is 0, which is not supported'],
    [{ ...peft, bias: 'lora_only' }, '"bias" is "lora_only", which is not supported'],
    [
      { ...peft, output_scale: 2 },
      '"output_scale" is 2, a field that is not known here and may change what is computed',
    ],
    [{ ...peft, r: 0 }, '"r" is 0; allowed: a number of at least 1.'],
    [{ ...peft, lora_alpha: Infinity }, '"lora_alpha" is Infinity; allowed: a number of at least 0.'],
    [{ ...peft, lora_dropout: 1 }, '"lora_dropout" is 1; allowed: a number of at least 0 and below 1.'],
    [{ ...peft, use_rslora: 'yes' }, '"use_rslora" is "yes"; allowed: true or false.'],
  ])('%o', (json, message) => expect(() => parseAdapterConfig(json)).toThrow(message));

  test('missing files, wrong model, foreign tensors, NaN', async () => {
    const files = saveAdapter(example());
    await expect(loadAdapter(sourceOf(new Map()), config)).rejects.toThrow('The adapter has no adapter_config.json');
    await expect(loadAdapter(sourceOf(files), { ...config, hiddenSize: 8 })).rejects.toThrow(
      'lora_A.weight" is [2, 6], but rank 2 on this model needs [2, 8]. Was it trained on another model?',
    );
    const foreign = example();
    foreign.tensors.set('base_model.model.lm_head.lora_A.weight', { shape: [1], data: Float32Array.of(1) });
    await expect(loadAdapter(sourceOf(saveAdapter(foreign)), config)).rejects.toThrow(
      'adapter_model.safetensors has "base_model.model.lm_head.lora_A.weight"; supported: q_proj',
    );
    const damaged = example();
    [...damaged.tensors.values()][1].data[3] = NaN;
    await expect(loadAdapter(sourceOf(saveAdapter(damaged)), config)).rejects.toThrow('holds NaN at element 3');
  });
});

const SHIPPED = resolve('checkpoints/gsm8k-tool');

/** Writes an adapter over the model in `base`, with more files beside it. */
async function adapterOver(base: string, beside: Record<string, string> = {}): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'webgrpo-adapter-'));
  const { config: ofModel } = await loadModelFiles(base);
  const files = saveAdapter({ lora, tensors: initLora(ofModel, lora), baseModel: base });
  for (const [name, content] of [...files, ...Object.entries(beside)]) writeFileSync(join(folder, name), content);
  return folder;
}

describe('an adapter with a chat template of its own', () => {
  const TEMPLATE = "{% for m in messages %}{{ m.role + ': ' + m.content + eos_token }}{% endfor %}";

  const configJson = { chat_template: TEMPLATE, eos_token: '<|other|>', pad_token: '<|other|>' };

  test.each([
    ['tokenizer_config.json', { 'tokenizer_config.json': JSON.stringify(configJson) }],
    ['chat_template.jinja', { 'tokenizer_config.json': '{}', 'chat_template.jinja': TEMPLATE }],
  ])('%s: used with the token ids of the base, merged and exported', async (_, beside) => {
    vi.spyOn(process.stderr, 'write').mockReturnValue(true);
    const folder = await adapterOver(SHIPPED, beside);
    const base = await loadModelFiles(SHIPPED);
    const want = { ...base.tokenizerConfigJson, chat_template: TEMPLATE };
    const loaded = await loadWithAdapter(folder);
    expect(loaded.tokenizerConfigJson).toEqual(want);
    expect(loaded.tokenizerJson).toEqual(base.tokenizerJson);
    expect((await loadWithAdapter(SHIPPED, folder)).tokenizerConfigJson).toEqual(want);
    expect((await openWithAdapter(folder)).model.tokenizerConfigJson).toEqual(want);
    const [out, gguf] = [join(folder, 'merged'), join(folder, 'model.gguf')];
    const io = { json: false, text: () => {}, result: () => {} };
    await merge.run({ positionals: [], overrides: [], flags: { model: folder, out } }, io);
    expect((await loadModelFiles(out)).tokenizerConfigJson).toEqual(want);
    await exportGguf(folder, gguf);
    expect(readFileSync(gguf).includes(TEMPLATE)).toBe(true);
  });

  test('without one, and for a base without tokenizer, nothing changes', async () => {
    const { tokenizerConfigJson } = await loadModelFiles(SHIPPED);
    const plain = await adapterOver(SHIPPED, { 'tokenizer_config.json': '{ "chat_template": null }' });
    expect((await loadWithAdapter(plain)).tokenizerConfigJson).toEqual(tokenizerConfigJson);
    const bare = join(plain, 'bare');
    mkdirSync(bare);
    for (const name of ['config.json', 'model.safetensors']) cpSync(join(SHIPPED, name), join(bare, name));
    const folder = await adapterOver(SHIPPED, { 'chat_template.jinja': TEMPLATE });
    expect((await openWithAdapter(bare, folder)).model.tokenizerConfigJson).toBeUndefined();
    await expect(loadWithAdapter(bare, folder)).rejects.toThrow('has no tokenizer.json and tokenizer_config.json');
    rmSync(bare, { recursive: true });
  });
});

test('the base of an adapter is a checkpoint, also if a run is named; a resumed run says that it has another base', async () => {
  const said = vi.spyOn(process.stderr, 'write').mockClear().mockReturnValue(true);
  const run = mkdtempSync(join(tmpdir(), 'webgrpo-base-'));
  const checkpoint = (step: number) => join(run, 'checkpoints', `step-${step}`);
  const train = (step: number) => cpSync(SHIPPED, checkpoint(step), { recursive: true });
  writeFileSync(join(run, 'config.yaml'), '');
  train(3);
  const { base } = await openWithAdapter(run);
  const adapter = await adapterOver(base);
  train(4);
  expect((await openWithAdapter(adapter)).base).toBe(checkpoint(3));
  await noteBase(adapter, base);
  expect(said).not.toHaveBeenCalled();
  await noteBase(adapter, (await openWithAdapter(run, adapter)).base);
  expect(said.mock.lastCall?.[0]).toContain(`trained on ${checkpoint(3)}, but model.path names ${checkpoint(4)} now.`);
  said.mockClear();
  const file = join(adapter, 'adapter_config.json');
  const recorded = JSON.parse(readFileSync(file, 'utf8')) as object;
  // A run's name, and a path from another working folder.
  for (const name of [run, join(basename(run), 'checkpoints', 'step-4')]) {
    writeFileSync(file, JSON.stringify({ ...recorded, base_model_name_or_path: name }));
    await noteBase(adapter, checkpoint(4));
  }
  expect(said).not.toHaveBeenCalled();
});
