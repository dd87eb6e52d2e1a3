/** tfjs-webgpu: webgrpo's tfjs engine trains the headline batch, and a plain Llama with a cache of concatenated tensors decodes. */

import type { Tensor } from '@tensorflow/tfjs';
import type { Gpu } from '../../src/gpu/device.ts';
import { ropeTables } from '../../src/model/config.ts';
import { initWeights } from '../../src/model/params.ts';
import { createTfjsEngine, loadTfjs, type Tf } from '../../src/extensions/tfjs/index.ts';
import { HEADLINE, plainBatch, randomModel, trainShape } from '../models.ts';
import { bestSeconds } from '../timing.ts';
import { trainRate, trainStep } from '../train.ts';
import type { CachedModel } from './decoding.ts';
import type { TrainPeerResult } from './types.ts';

/** Loads tfjs, and lets it choose its matmul kernels. webgrpo's tfjs engine fixes one of these choices to get the same bits every time. */
async function ownChoice(gpu: Gpu): Promise<Tf> {
  const { tf } = await loadTfjs(gpu);
  tf.env().set('WEBGPU_MATMUL_PROGRAM_TYPE', -1);
  return tf;
}

export async function runTfjsTrain(gpu: Gpu, quick: boolean): Promise<TrainPeerResult> {
  await ownChoice(gpu);
  const batch = plainBatch(...trainShape(quick), HEADLINE.vocabSize);
  const engine = await createTfjsEngine(gpu, randomModel(gpu, HEADLINE), batch.tokens.length);
  const logProbs = async () => [...(await engine.logProbs(batch, { temperature: 1 })).logProbs];
  const before = await logProbs();
  await trainStep(engine, batch);
  const logProbsAfter = await logProbs();
  const seconds = await bestSeconds(() => trainStep(engine, batch), quick ? 1 : 2, 0); // warm from the previous step
  const { tokensPerSecond } = trainRate(HEADLINE, batch, seconds);
  return { tokensPerSecond, logProbs: before, logProbsAfter };
}

/** Weights by Hugging Face name, matrices transposed to [in, out]; rope tables [P, D / 2]. */
interface Model {
  tf: Tf;
  weights: Map<string, Tensor>;
  cos: Tensor;
  sin: Tensor;
}

/** Opens empty caches on one copy of the weights. */
export async function tfjsDecoder(gpu: Gpu): Promise<(sequences: number) => CachedModel> {
  const tf = await ownChoice(gpu);
  const weights = new Map<string, Tensor>();
  for (const [name, { data, shape }] of initWeights(HEADLINE, 1)) {
    const tensor = tf.tensor(data, shape);
    weights.set(name, shape.length === 2 && !name.includes('embed') ? tf.transpose(tensor) : tensor);
  }
  const P = HEADLINE.maxPositionEmbeddings;
  const tables = ropeTables(HEADLINE, P);
  const table = (data: Float32Array) => tf.tensor(data, [P, HEADLINE.headDim / 2]);
  const model: Model = { tf, weights, cos: table(tables.cos), sin: table(tables.sin) };
  return (sequences) => cached(model, sequences);
}

function cached(model: Model, B: number): CachedModel {
  const { tf } = model;
  let caches: Tensor[] = [];
  let length = 0;
  return {
    async next(ids, S) {
      const [logits, ...grown] = tf.tidy(() =>
        forward(model, tf.tensor(Int32Array.from(ids), [B, S], 'int32'), length, caches),
      );
      caches.forEach((cache) => cache.dispose());
      caches = grown;
      length += S;
      const data = (await logits.data()) as Float32Array;
      logits.dispose();
      return data;
    },
    dispose: () => caches.forEach((cache) => cache.dispose()),
  };
}

/** Computes ids [B, S] at positions start.. Returns logits [B, V] of the last one, then the caches [B, H, start + S, D]. */
function forward({ tf, weights, cos, sin }: Model, ids: Tensor, start: number, caches: Tensor[]): Tensor[] {
  const [B, S] = ids.shape as [number, number];
  const { hiddenSize: C, numAttentionHeads: H, headDim: D, numHiddenLayers: L, rmsNormEps } = HEADLINE;
  const w = (name: string) => weights.get(`model.${name}.weight`)!;
  const rows = (table: Tensor) => tf.slice(table, [start, 0], [S, D / 2]);
  const [c, s] = [rows(cos), rows(sin)];
  const rotate = (x: Tensor) => {
    const [a, b] = tf.split(x, 2, 3);
    return tf.concat([tf.sub(tf.mul(a, c), tf.mul(b, s)), tf.add(tf.mul(b, c), tf.mul(a, s))], 3);
  };
  const norm = (x: Tensor, weight: Tensor) =>
    tf.mul(tf.mul(x, tf.rsqrt(tf.add(tf.mean(tf.square(x), -1, true), rmsNormEps))), weight);
  const mask = tf.mul(tf.linalg.bandPart(tf.ones([S, start + S]), -1, start).sub(1), 1e9);
  const grown: Tensor[] = [];
  let x = tf.reshape(tf.gather(w('embed_tokens'), ids), [B * S, C]);
  for (let l = 0; l < L; l++) {
    const at = (name: string) => w(`layers.${l}.${name}`);
    const h = norm(x, at('input_layernorm'));
    const heads = (name: string) =>
      tf.transpose(tf.reshape(tf.matMul(h, at(`self_attn.${name}`)), [B, S, H, D]), [0, 2, 1, 3]);
    const longer = (part: Tensor, i: number) => (start > 0 ? tf.concat([caches[i], part], 2) : part);
    const k = longer(rotate(heads('k_proj')), 2 * l);
    const v = longer(heads('v_proj'), 2 * l + 1);
    grown.push(k, v);
    const scores = tf.mul(tf.matMul(rotate(heads('q_proj')), k, false, true), 1 / Math.sqrt(D));
    const out = tf.matMul(tf.softmax(S > 1 ? tf.add(scores, mask) : scores), v);
    const flat = tf.reshape(tf.transpose(out, [0, 2, 1, 3]), [B * S, H * D]);
    x = tf.add(x, tf.matMul(flat, at('self_attn.o_proj')));
    const h2 = norm(x, at('post_attention_layernorm'));
    const gate = tf.matMul(h2, at('mlp.gate_proj'));
    const act = tf.mul(tf.mul(gate, tf.sigmoid(gate)), tf.matMul(h2, at('mlp.up_proj')));
    x = tf.add(x, tf.matMul(act, at('mlp.down_proj')));
  }
  const last = tf.reshape(tf.slice(tf.reshape(x, [B, S, C]), [0, S - 1, 0], [B, 1, C]), [B, C]);
  return [tf.matMul(norm(last, w('norm')), w('embed_tokens'), false, true), ...grown];
}
