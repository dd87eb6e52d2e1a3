/** ONNX Runtime Web decodes with its wasm and its WebGPU provider. The KV cache stays on the provider's device. */

import type { InferenceSession, Tensor } from 'onnxruntime-web';
import { initWeights } from '../../src/model/params.ts';
import { HEADLINE } from '../models.ts';
import type { CachedModel } from './decoding.ts';
import { onnxLlama } from './onnxModel.ts';

export type Ort = typeof import('onnxruntime-web');
type Provider = 'wasm' | 'webgpu';

/** Opens empty caches for `sequences` sequences on one session. */
export async function ortDecoder(ort: Ort, provider: Provider): Promise<(sequences: number) => CachedModel> {
  const model = onnxLlama(HEADLINE, initWeights(HEADLINE, 1), HEADLINE.maxPositionEmbeddings);
  const presents = Object.fromEntries(cacheNames('present').map((name) => [name, 'gpu-buffer' as const]));
  const session = await ort.InferenceSession.create(model, {
    executionProviders: [provider],
    ...(provider === 'webgpu' && { preferredOutputLocation: { ...presents, logits: 'cpu' as const } }),
  });
  return (sequences) => cached(ort, session, sequences);
}

function cacheNames(when: 'past' | 'present'): string[] {
  const layers = Array.from({ length: HEADLINE.numHiddenLayers }, (_, l) => l);
  return layers.flatMap((l) => [`${when}.${l}.key`, `${when}.${l}.value`]);
}

function cached(ort: Ort, session: InferenceSession, B: number): CachedModel {
  const { numKeyValueHeads: K, headDim: D } = HEADLINE;
  const [past, present] = [cacheNames('past'), cacheNames('present')];
  let caches: Tensor[] = past.map(() => new ort.Tensor('float32', new Float32Array(0), [B, K, 0, D]));
  let length = 0;
  const forget = () => caches.forEach((cache) => cache.dispose());
  return {
    async next(ids, S) {
      length += S;
      const feeds: Record<string, Tensor> = {
        input_ids: new ort.Tensor('int64', BigInt64Array.from(ids, BigInt), [B, S]),
        seqlens_k: new ort.Tensor('int32', new Int32Array(B).fill(length - 1), [B]),
        total_length: new ort.Tensor('int32', Int32Array.of(length), [1]),
      };
      past.forEach((name, i) => (feeds[name] = caches[i]));
      const results = await session.run(feeds);
      forget();
      caches = present.map((name) => results[name]);
      return results['logits'].data as Float32Array;
    },
    dispose: forget,
  };
}
