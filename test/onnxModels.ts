/** Writes tiny checkpoints in the format of transformers.js: config.json, tokenizer files, onnx/model.onnx. */

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { attribute, FLOAT, GraphWriter, INT64 } from '../bench/peers/onnxGraph.ts';
import { onnxLlama } from '../bench/peers/onnxModel.ts';
import { modelConfigToJson, type ModelConfig } from '../src/model/config.ts';
import type { TensorMap } from '../src/model/engine.ts';
import { rng } from './random.ts';

interface TokenizerFiles {
  tokenizer: Record<string, unknown>;
  config: Record<string, unknown>;
}

/** The classifier: logits = mean over tokens of embed[id] x head + bias. */
interface BagClassifier {
  /** [V, C] */
  embed: Float32Array;
  /** [C, labels] */
  head: Float32Array;
  /** [labels] */
  bias: Float32Array;
  labels: string[];
}

/** Creates a classifier with random values. */
export function bagClassifier(vocabSize: number, labels: string[]): BagClassifier {
  const C = 3;
  const [embed, head, bias] = [vocabSize * C, C * labels.length, labels.length].map((n, i) => rng(i + 1).normals(n));
  return { embed, head, bias, labels };
}

/** Returns the classifier's logits, computed in float64. */
export function bagLogits({ embed, head, bias }: BagClassifier, ids: readonly number[]): number[] {
  const C = head.length / bias.length;
  const mean = Array.from({ length: C }, (_, c) => ids.reduce((sum, id) => sum + embed[id * C + c], 0) / ids.length);
  return Array.from(bias, (b, label) => mean.reduce((sum, x, c) => sum + x * head[c * bias.length + label], b));
}

/** Writes a sequence classifier of type BERT. The type determines the names of the model's inputs. */
export function writeClassifier(folder: string, model: BagClassifier, files: TokenizerFiles): void {
  const { labels, bias, head } = model;
  const config = {
    architectures: ['BertForSequenceClassification'],
    model_type: 'bert',
    id2label: Object.fromEntries(labels.map((label, i) => [i, label])),
    label2id: Object.fromEntries(labels.map((label, i) => [label, i])),
    hidden_size: head.length / bias.length,
  };
  writeModel(folder, config, classifierGraph(model), files);
}

/** Writes a small Llama for generation with transformers.js. */
export function writeGenerator(
  folder: string,
  config: ModelConfig,
  weights: TensorMap,
  files: TokenizerFiles,
  eosTokenId: number,
): void {
  const json = { ...modelConfigToJson(config), eos_token_id: eosTokenId, pad_token_id: eosTokenId };
  writeModel(folder, json, onnxLlama(config, weights, config.maxPositionEmbeddings, { hub: true }), files);
  // transformers.js refuses a folder without this file.
  writeFileSync(join(folder, 'generation_config.json'), JSON.stringify({ eos_token_id: eosTokenId }));
}

function writeModel(folder: string, config: object, onnx: Uint8Array, { tokenizer, config: tokens }: TokenizerFiles) {
  mkdirSync(join(folder, 'onnx'), { recursive: true });
  const json = { 'config.json': config, 'tokenizer.json': tokenizer, 'tokenizer_config.json': tokens };
  for (const [name, value] of Object.entries(json)) writeFileSync(join(folder, name), JSON.stringify(value));
  writeFileSync(join(folder, 'onnx', 'model.onnx'), onnx);
}

function classifierGraph({ embed, head, bias }: BagClassifier): Uint8Array {
  const [labels, C] = [bias.length, head.length / bias.length];
  const g = new GraphWriter();
  g.input('input_ids', INT64, ['B', 'S']);
  g.input('attention_mask', INT64, ['B', 'S']);
  g.constant('embed', embed, [embed.length / C, C]);
  g.constant('head', head, [C, labels]);
  g.constant('bias', bias, [labels]);
  g.indices('tokens', [1]);
  g.indices('behind', [2]);
  const [mask] = g.node('Cast', ['attention_mask'], ['mask'], [attribute.int('to', FLOAT)]);
  const [rows] = g.node('Gather', ['embed', 'input_ids'], ['rows']);
  const [seen] = g.node('Mul', [rows, g.node('Unsqueeze', [mask, 'behind'], ['mask3'])[0]], ['seen']);
  const [sum] = g.node('ReduceSum', [seen, 'tokens'], ['sum'], [attribute.int('keepdims', 0)]);
  const [count] = g.node('ReduceSum', [mask, 'tokens'], ['count'], [attribute.int('keepdims', 1)]);
  const [mean] = g.node('Div', [sum, count], ['mean']);
  g.node('Add', [g.node('MatMul', [mean, 'head'], ['scores'])[0], 'bias'], ['logits']);
  g.output('logits', ['B', labels]);
  return g.finish();
}
