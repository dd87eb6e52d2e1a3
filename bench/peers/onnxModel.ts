/**
 * Writes a Llama with a key/value cache as an ONNX file. Operators are those of exports for transformers.js: fused norms, and
 * com.microsoft's GroupQueryAttention, which rotates, extends the cache and attends.
 *   in   input_ids [B, S], seqlens_k [B] (length - 1), total_length [1], past.<l>.key and .value [B, K, P, D]
 *   out  logits [B, V] of the last position, present.<l>.key and .value [B, K, P + S, D]
 * With `hub` the inputs and outputs are those that transformers.js expects:
 *   in   input_ids [B, S], attention_mask [B, P + S], past_key_values.<l>.key and .value
 *   out  logits [B, S, V], present.<l>.key and .value
 */

import { type ModelConfig, ropeTables } from '../../src/model/config.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import { attribute, FLOAT, GraphWriter, INT32, INT64 } from './onnxGraph.ts';

/** Throws if the model has parts that HEADLINE lacks: biases, q/k norms, an untied head. */
export function onnxLlama(
  config: ModelConfig,
  weights: TensorMap,
  maxPositions: number,
  { hub = false }: { hub?: boolean } = {},
): Uint8Array {
  if (config.qkvBias || config.qkNorm || !config.tieWordEmbeddings)
    throw new Error('onnxLlama writes plain Llama models with a tied head only.');
  const graph = new GraphWriter();
  writeLengths(graph, hub);
  writeBody(graph, config, weights, maxPositions, hub);
  return graph.finish();
}

/**
 * Writes the two inputs of GroupQueryAttention that hold the length of each sequence and the longest length. With `hub` the graph computes
 * them from the attention mask.
 */
function writeLengths(g: GraphWriter, hub: boolean): void {
  if (!hub) {
    g.input('seqlens_k', INT32, ['B']);
    return g.input('total_length', INT32, [1]);
  }
  g.input('attention_mask', INT64, ['B', 'T']);
  g.indices('one', [1]);
  const [counts] = g.node('ReduceSum', ['attention_mask', 'one'], ['counts'], [attribute.int('keepdims', 0)]);
  const [lasts] = g.node('Sub', [counts, 'one'], ['lasts']);
  g.node('Cast', [lasts], ['seqlens_k'], [attribute.int('to', INT32)]);
  const [length] = g.node('Gather', [g.node('Shape', ['attention_mask'], ['maskShape'])[0], 'one'], ['length']);
  g.node('Cast', [length], ['total_length'], [attribute.int('to', INT32)]);
}

function writeBody(g: GraphWriter, config: ModelConfig, weights: TensorMap, maxPositions: number, hub: boolean): void {
  const past = hub ? 'past_key_values' : 'past';
  const { hiddenSize: C, vocabSize: V, headDim: D, numKeyValueHeads: K, numHiddenLayers: L } = config;
  const tables = ropeTables(config, maxPositions);
  g.constant('cos', tables.cos, [maxPositions, D / 2]);
  g.constant('sin', tables.sin, [maxPositions, D / 2]);
  g.input('input_ids', INT64, ['B', 'S']);
  const embed = weights.get('model.embed_tokens.weight')!.data;
  g.constant('embed', embed, [V, C]);
  const embedded = g.node('Gather', ['embed', 'input_ids'], ['x0'])[0];
  let [x, normed] = [embedded, norm(g, config, weights, 'layers.0.input_layernorm', embedded)];
  for (let l = 0; l < L; l++) {
    for (const part of ['key', 'value']) {
      g.input(`${past}.${l}.${part}`, FLOAT, ['batch_size', K, 'past_sequence_length', D]);
      g.output(`present.${l}.${part}`, ['B', K, 'T', D]);
    }
    const attended = attention(g, config, weights, l, normed, past);
    [normed, x] = addNorm(g, config, weights, `layers.${l}.post_attention_layernorm`, x, attended);
    const after = l + 1 < L ? `layers.${l + 1}.input_layernorm` : 'norm';
    [normed, x] = addNorm(g, config, weights, after, x, mlp(g, weights, l, normed));
  }
  g.constant('head', transposed(embed, V, C), [C, V]);
  if (hub) {
    g.node('MatMul', [normed, 'head'], ['logits']);
    return g.output('logits', ['B', 'S', V]);
  }
  g.indices('last', [-1]);
  g.indices('rows', [-1, C]);
  const [end] = g.node('Gather', [normed, 'last'], ['end'], [attribute.int('axis', 1)]);
  g.node('MatMul', [g.node('Reshape', [end, 'rows'], ['end2'])[0], 'head'], ['logits']);
  g.output('logits', ['B', V]);
}

function attention(
  g: GraphWriter,
  config: ModelConfig,
  weights: TensorMap,
  l: number,
  x: string,
  past: string,
): string {
  const { numAttentionHeads, numKeyValueHeads } = config;
  const at = `layers.${l}.self_attn`;
  const [q, k, v] = ['q', 'k', 'v'].map((name) => linear(g, weights, `${at}.${name}_proj`, x));
  const [out] = g.node(
    'GroupQueryAttention',
    [q, k, v, `${past}.${l}.key`, `${past}.${l}.value`, 'seqlens_k', 'total_length', 'cos', 'sin'],
    [`${at}.out`, `present.${l}.key`, `present.${l}.value`],
    [
      attribute.int('num_heads', numAttentionHeads),
      attribute.int('kv_num_heads', numKeyValueHeads),
      attribute.int('do_rotary', 1),
    ],
    'com.microsoft',
  );
  return linear(g, weights, `${at}.o_proj`, out);
}

function mlp(g: GraphWriter, weights: TensorMap, l: number, x: string): string {
  const at = `layers.${l}.mlp`;
  const gate = linear(g, weights, `${at}.gate_proj`, x);
  const up = linear(g, weights, `${at}.up_proj`, x);
  const [sigmoid] = g.node('Sigmoid', [gate], [`${at}.sigmoid`]);
  const [silu] = g.node('Mul', [gate, sigmoid], [`${at}.silu`]);
  return linear(g, weights, `${at}.down_proj`, g.node('Mul', [silu, up], [`${at}.act`])[0]);
}

function linear(g: GraphWriter, weights: TensorMap, name: string, x: string): string {
  const { data, shape } = weights.get(`model.${name}.weight`)!;
  g.constant(name, transposed(data, shape[0], shape[1]), [shape[1], shape[0]]);
  return g.node('MatMul', [x, name], [`${name}.y`])[0];
}

function norm(g: GraphWriter, config: ModelConfig, weights: TensorMap, name: string, x: string): string {
  g.constant(name, weights.get(`model.${name}.weight`)!.data, [config.hiddenSize]);
  const epsilon = attribute.float('epsilon', config.rmsNormEps);
  return g.node('SimplifiedLayerNormalization', [x, name], [`${name}.y`], [epsilon, attribute.int('axis', -1)])[0];
}

/** Adds `add` to `x`. Returns the RMS-normalized sum, and the sum itself. */
function addNorm(g: GraphWriter, config: ModelConfig, weights: TensorMap, name: string, x: string, add: string) {
  g.constant(name, weights.get(`model.${name}.weight`)!.data, [config.hiddenSize]);
  const outputs = [`${name}.y`, '', '', `${name}.sum`];
  const epsilon = attribute.float('epsilon', config.rmsNormEps);
  g.node('SkipSimplifiedLayerNormalization', [x, add, name], outputs, [epsilon], 'com.microsoft');
  return [outputs[0], outputs[3]];
}

function transposed(data: Float32Array, rows: number, cols: number): Float32Array {
  const out = new Float32Array(data.length);
  for (let r = 0; r < rows; r++) for (let c = 0; c < cols; c++) out[c * rows + r] = data[r * cols + c];
  return out;
}
