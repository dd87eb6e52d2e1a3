/**
 * A Llama with a key/value cache as an ONNX file, with the operators that exports for transformers.js have: fused norms,
 * and com.microsoft's GroupQueryAttention, which rotates, extends the cache and attends.
 *   in   input_ids [B, S], seqlens_k [B] (length - 1), total_length [1], past.<l>.key and .value [B, K, P, D]
 *   out  logits [B, V] of the last position, present.<l>.key and .value [B, K, P + S, D]
 */

import { type ModelConfig, ropeTables } from '../../src/model/config.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import { bytes, float, int, message, text } from './protobuf.ts';

const [FLOAT, INT32, INT64] = [1, 6, 7]; // TensorProto.DataType
type Dim = number | string;

/** Throws for what HEADLINE does not have: biases, q/k norms, an untied head. */
export function onnxLlama(config: ModelConfig, weights: TensorMap, maxPositions: number): Uint8Array {
  if (config.qkvBias || config.qkNorm || !config.tieWordEmbeddings)
    throw new Error('onnxLlama writes plain Llama models with a tied head only.');
  const graph = new GraphWriter();
  writeBody(graph, config, weights, maxPositions);
  return graph.finish();
}

function writeBody(g: GraphWriter, config: ModelConfig, weights: TensorMap, maxPositions: number): void {
  const { hiddenSize: C, vocabSize: V, headDim: D, numKeyValueHeads: K, numHiddenLayers: L } = config;
  const tables = ropeTables(config, maxPositions);
  g.constant('cos', tables.cos, [maxPositions, D / 2]);
  g.constant('sin', tables.sin, [maxPositions, D / 2]);
  g.input('input_ids', INT64, ['B', 'S']);
  g.input('seqlens_k', INT32, ['B']);
  g.input('total_length', INT32, [1]);
  const embed = weights.get('model.embed_tokens.weight')!.data;
  g.constant('embed', embed, [V, C]);
  const embedded = g.node('Gather', ['embed', 'input_ids'], ['x0'])[0];
  let [x, normed] = [embedded, norm(g, config, weights, 'layers.0.input_layernorm', embedded)];
  for (let l = 0; l < L; l++) {
    for (const part of ['key', 'value']) {
      g.input(`past.${l}.${part}`, FLOAT, ['B', K, 'P', D]);
      g.output(`present.${l}.${part}`, ['B', K, 'T', D]);
    }
    const attended = attention(g, config, weights, l, normed);
    [normed, x] = addNorm(g, config, weights, `layers.${l}.post_attention_layernorm`, x, attended);
    const after = l + 1 < L ? `layers.${l + 1}.input_layernorm` : 'norm';
    [normed, x] = addNorm(g, config, weights, after, x, mlp(g, weights, l, normed));
  }
  g.indices('last', [-1]);
  g.indices('rows', [-1, C]);
  g.constant('head', transposed(embed, V, C), [C, V]);
  const [end] = g.node('Gather', [normed, 'last'], ['end'], [attribute.int('axis', 1)]);
  g.node('MatMul', [g.node('Reshape', [end, 'rows'], ['end2'])[0], 'head'], ['logits']);
  g.output('logits', ['B', V]);
}

function attention(g: GraphWriter, config: ModelConfig, weights: TensorMap, l: number, x: string): string {
  const { numAttentionHeads, numKeyValueHeads } = config;
  const at = `layers.${l}.self_attn`;
  const [q, k, v] = ['q', 'k', 'v'].map((name) => linear(g, weights, `${at}.${name}_proj`, x));
  const [out] = g.node(
    'GroupQueryAttention',
    [q, k, v, `past.${l}.key`, `past.${l}.value`, 'seqlens_k', 'total_length', 'cos', 'sin'],
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

/** Returns the normed sum and the sum. */
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

/** AttributeProto: name = 1, f = 2, i = 3, type = 20. */
const attribute = {
  float: (name: string, value: number) => message(text(1, name), float(2, value), int(20, 1)),
  /** A negative number takes ten bytes of two's complement; only -1 is needed. */
  int: (name: string, value: number) =>
    message(
      text(1, name),
      value === -1 ? Uint8Array.of(24, ...Array<number>(9).fill(255), 1) : int(3, value),
      int(20, 2),
    ),
};

/** Collects the parts of a GraphProto: node = 1, name = 2, initializer = 5, input = 11, output = 12. */
class GraphWriter {
  readonly #fields: Uint8Array[] = [];

  node(op: string, inputs: string[], outputs: string[], attributes: Uint8Array[] = [], domain = ''): string[] {
    const names = [...inputs.map((name) => text(1, name)), ...outputs.map((name) => text(2, name))];
    const rest = [text(3, outputs[0]), text(4, op), ...attributes.map((a) => bytes(5, a)), text(7, domain)];
    this.#fields.push(bytes(1, message(...names, ...rest)));
    return outputs;
  }

  constant(name: string, data: Float32Array, shape: number[]): void {
    this.#initializer(name, FLOAT, new Uint8Array(data.buffer, data.byteOffset, data.byteLength), shape);
  }

  indices(name: string, values: number[]): void {
    this.#initializer(name, INT64, new Uint8Array(BigInt64Array.from(values.map(BigInt)).buffer), [values.length]);
  }

  input(name: string, type: number, shape: Dim[]): void {
    this.#fields.push(bytes(11, valueInfo(name, type, shape)));
  }

  output(name: string, shape: Dim[]): void {
    this.#fields.push(bytes(12, valueInfo(name, FLOAT, shape)));
  }

  /** ModelProto: ir_version = 1, graph = 7, opset_import = 8. */
  finish(): Uint8Array {
    const graph = message(...this.#fields, text(2, 'llama'));
    const opset = (domain: string, version: number) => bytes(8, message(text(1, domain), int(2, version)));
    return message(int(1, 9), bytes(7, graph), opset('', 18), opset('com.microsoft', 1));
  }

  /** TensorProto: dims = 1, data_type = 2, name = 8, raw_data = 9. */
  #initializer(name: string, type: number, raw: Uint8Array, shape: number[]): void {
    const dims = shape.map((size) => int(1, size));
    this.#fields.push(bytes(5, message(...dims, int(2, type), text(8, name), bytes(9, raw))));
  }
}

/** ValueInfoProto: name = 1, type = 2; a dimension is a number (1) or a name (2). */
function valueInfo(name: string, type: number, shape: Dim[]): Uint8Array {
  const dims = shape.map((size) => bytes(1, typeof size === 'number' ? int(1, size) : text(2, size)));
  return message(text(1, name), bytes(2, bytes(1, message(int(1, type), bytes(2, message(...dims))))));
}
