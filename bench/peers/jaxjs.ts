/**
 * jax-js trains the headline batch: forward, gradients, clipping and AdamW in one jitted function, in the style of a JAX program. jax-js
 * counts references: a value that is used again is passed as `.ref`.
 */

import { defaultDevice, init, jit, nn, numpy as np, tree, valueAndGrad } from '@jax-js/jax';
import { type ModelConfig, ropeTables } from '../../src/model/config.ts';
import { initWeights } from '../../src/model/params.ts';
import { ADAMW, HEADLINE, tokenIds, trainShape } from '../models.ts';
import { bestSeconds } from '../timing.ts';
import type { TrainPeerResult } from './types.ts';

type Weights = Record<string, np.Array>;
/** ids [B, T]; targets [B, T, V] one-hot; cos and sin [T, 1, D / 2]; mask [T, T] 0 or very negative. */
type Batch = { ids: np.Array; targets: np.Array; cos: np.Array; sin: np.Array; mask: np.Array };
type Optimizer = { m: Weights; v: Weights };

export async function runJaxjs(quick: boolean): Promise<TrainPeerResult> {
  // jax-js reads navigator.userAgent to distinguish browsers; in Node with Dawn the user agent is empty.
  if (!navigator.userAgent) Object.defineProperty(navigator, 'userAgent', { value: 'Chrome', configurable: true });
  const devices = await init('webgpu');
  if (!devices.includes('webgpu')) throw new Error(`jax-js found no WebGPU, only ${devices.join(', ')}.`);
  defaultDevice('webgpu');
  const [B, T] = trainShape(quick);
  const state = new TrainState(HEADLINE, B, T);
  const logProbs = await state.logProbs();
  await state.step();
  const logProbsAfter = await state.logProbs();
  const seconds = await bestSeconds(() => state.step(), quick ? 1 : 3);
  return { tokensPerSecond: (B * T) / seconds, logProbs, logProbsAfter };
}

class TrainState {
  readonly #batch: Batch;
  readonly #logProbs: (weights: Weights, batch: Batch) => np.Array;
  readonly #step: ReturnType<typeof jitStep>;
  #weights: Weights;
  #optimizer: Optimizer;
  #steps = 0;

  constructor(config: ModelConfig, B: number, T: number) {
    const entries = [...initWeights(config, 1)];
    const zeros = () => Object.fromEntries(entries.map(([name, { shape }]) => [name, np.zeros(shape)]));
    this.#weights = Object.fromEntries(entries.map(([name, { data, shape }]) => [name, arrayOf(data, shape)]));
    this.#optimizer = { m: zeros(), v: zeros() };
    this.#batch = batchOf(config, B, T);
    this.#logProbs = jit((weights: Weights, batch: Batch) => logProbsOf(config, weights, batch));
    this.#step = jitStep(config);
  }

  /** Returns log-probs [B * T], sequence by sequence. */
  async logProbs(): Promise<number[]> {
    return [...(await this.#logProbs(tree.ref(this.#weights), tree.ref(this.#batch)).data())];
  }

  /** Runs one step. Waits for its loss and gradient norm, as webgrpo's step does. */
  async step(): Promise<void> {
    const t = ++this.#steps;
    const corrections = np.array([1 - ADAMW.beta1 ** t, 1 - ADAMW.beta2 ** t]);
    const [weights, optimizer, stats] = this.#step(this.#weights, this.#optimizer, tree.ref(this.#batch), corrections);
    this.#weights = weights;
    this.#optimizer = optimizer;
    await stats.data();
  }
}

const arrayOf = (data: Float32Array, shape: number[]) => np.array(data as Float32Array<ArrayBuffer>).reshape(shape);

/** Returns the same tokens as `plainBatch`. */
function batchOf(config: ModelConfig, B: number, T: number): Batch {
  const { vocabSize: V, headDim: D } = config;
  const [ids, targets] = [new Int32Array(B * T), new Int32Array(B * T)];
  for (let s = 0; s < B; s++) {
    const tokens = tokenIds(T + 1, V, s + 1);
    ids.set(tokens.subarray(0, T), s * T);
    targets.set(tokens.subarray(1), s * T);
  }
  const tables = ropeTables(config, T);
  return {
    ids: np.array(ids).reshape([B, T]),
    targets: nn.oneHot(np.array(targets), V).reshape([B, T, V]),
    cos: arrayOf(tables.cos, [T, 1, D / 2]),
    sin: arrayOf(tables.sin, [T, 1, D / 2]),
    mask: np.tri(T).sub(1).mul(1e9),
  };
}

function jitStep(config: ModelConfig) {
  const { lr, beta1, beta2, eps, weightDecay, gradClip } = ADAMW;
  return jit((weights: Weights, { m, v }: Optimizer, batch: Batch, corrections: np.Array) => {
    const loss = (w: Weights, b: Batch) => np.negative(np.mean(logProbsOf(config, w, b)));
    const [value, gradients] = valueAndGrad(loss)(tree.ref(weights), batch);
    const squares = Object.values(gradients).map((g) => np.sum(np.square(g.ref)));
    const norm = np.sqrt(squares.reduce((a, b) => a.add(b)));
    const scale = np.minimum(np.divide(gradClip, norm.ref.add(1e-6)), 1);
    const [c1, c2] = np.split(corrections, 2);
    const next: { weights: Weights; m: Weights; v: Weights } = { weights: {}, m: {}, v: {} };
    for (const name of Object.keys(weights)) {
      const g = gradients[name].mul(scale.ref);
      const first = m[name].mul(beta1).add(g.ref.mul(1 - beta1));
      const second = v[name].mul(beta2).add(np.square(g).mul(1 - beta2));
      const root = np.sqrt(second.ref.div(c2.ref)).add(eps);
      const update = first.ref.div(c1.ref).div(root);
      next.weights[name] = weights[name].mul(1 - lr * weightDecay).sub(update.mul(lr));
      next.m[name] = first;
      next.v[name] = second;
    }
    for (const used of [scale, c1, c2]) used.dispose();
    const stats = np.stack([value, norm]);
    return [next.weights, { m: next.m, v: next.v }, stats] as [Weights, Optimizer, np.Array];
  });
}

/** Returns log-probs [B * T]. */
function logProbsOf(config: ModelConfig, weights: Weights, { ids, targets, cos, sin, mask }: Batch): np.Array {
  const embed = weights['model.embed_tokens.weight'];
  let x = np.take(embed.ref, ids, 0); // [B, T, C]
  for (let l = 0; l < config.numHiddenLayers; l++) {
    const w = (name: string) => weights[`model.layers.${l}.${name}.weight`];
    x = layer(config, w, x, { cos: cos.ref, sin: sin.ref, mask: mask.ref });
  }
  for (const table of [cos, sin, mask]) table.dispose();
  const hidden = rmsnorm(config, x, weights['model.norm.weight']);
  const logits = np.matmul(hidden, embed.transpose());
  return np.sum(nn.logSoftmax(logits, -1).mul(targets), -1).flatten();
}

function layer(
  config: ModelConfig,
  w: (name: string) => np.Array,
  x: np.Array,
  { cos, sin, mask }: Pick<Batch, 'cos' | 'sin' | 'mask'>,
): np.Array {
  const [B, T, C] = x.shape;
  const h = rmsnorm(config, x.ref, w('input_layernorm'));
  const heads = (name: string) => linear(h.ref, w(`self_attn.${name}`)).reshape([B, T, -1, config.headDim]);
  const first = (y: np.Array) => np.transpose(y, [0, 2, 1, 3]); // [B, H, T, D]
  const q = rotate(heads('q_proj'), cos.ref, sin.ref);
  const k = rotate(heads('k_proj'), cos, sin);
  // nn.dotProductAttention is an einsum, whose parser needs iterator helpers, which Node 20 lacks.
  const scores = np.matmul(first(q), np.transpose(k, [0, 2, 3, 1])).mul(1 / Math.sqrt(config.headDim));
  const p = nn.softmax(scores.add(mask), -1); // [B, H, T, T]
  const attended = first(np.matmul(p, first(heads('v_proj')))).reshape([B, T, C]);
  h.dispose();
  const middle = x.add(linear(attended, w('self_attn.o_proj')));
  const h2 = rmsnorm(config, middle.ref, w('post_attention_layernorm'));
  const gate = nn.silu(linear(h2.ref, w('mlp.gate_proj')));
  return middle.add(linear(gate.mul(linear(h2, w('mlp.up_proj'))), w('mlp.down_proj')));
}

const linear = (x: np.Array, weight: np.Array) => np.matmul(x, weight.transpose());

function rmsnorm({ rmsNormEps }: ModelConfig, x: np.Array, weight: np.Array): np.Array {
  const meanSquare = np.mean(np.square(x.ref), -1, { keepdims: true });
  return x.div(np.sqrt(meanSquare.add(rmsNormEps))).mul(weight);
}

/** Applies rotary embeddings to x [B, T, heads, D], rotating the two halves of each head. */
function rotate(x: np.Array, cos: np.Array, sin: np.Array): np.Array {
  const [a, b] = np.split(x, 2, -1);
  const turned = a.ref.mul(cos.ref).sub(b.ref.mul(sin.ref));
  return np.concatenate([turned, b.mul(cos).add(a.mul(sin))], -1);
}
