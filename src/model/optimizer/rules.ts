/**
 * The update rules of the optimizers: each has its state in addition to the gradients, and turns gradients into an
 * update.
 */

import type { View } from '../../gpu/device.ts';
import { adamw } from '../../gpu/ops/adamw.ts';
import { momentum, sgd } from '../../gpu/ops/sgd.ts';
import { MuonRule } from './muon.ts';
import type { Rule, Trained } from './rule.ts';
import type { OptimizerSpec } from './spec.ts';

/** Creates the update rule of an optimizer. */
export function makeRule(spec: OptimizerSpec, trained: Trained): Rule {
  if (spec.name === 'AdamW') return adamwRule(trained);
  if (spec.name === 'Muon') return new MuonRule(spec, trained);
  if (spec.name === 'SGD' && spec.momentum > 0) return momentumRule(spec, trained);
  const sign = spec.name === 'SignSGD';
  return {
    states: new Map(),
    update: (_, { lr, weightDecay }) =>
      // SignSGD's weight decay is decoupled: if it were added to the gradient, as PyTorch's SGD does, the sign would hide it.
      wholeBuffers(trained, (views) =>
        sgd(trained.gpu, { ...views, lr, sign, ...(sign ? { decay: weightDecay } : { l2: weightDecay }) }),
      ),
  };
}

function adamwRule(trained: Trained): Rule {
  const [expAvg, expAvgSq] = [trained.like('adamw.exp_avg'), trained.like('adamw.exp_avg_sq')];
  return {
    states: new Map([
      ['exp_avg', expAvg],
      ['exp_avg_sq', expAvgSq],
    ]),
    update: (t, options) =>
      wholeBuffers(trained, (views, i) =>
        adamw(trained.gpu, { ...views, m: expAvg.buffers[i], v: expAvgSq.buffers[i], t, ...options }),
      ),
  };
}

function momentumRule({ momentum: mu, nesterov }: { momentum: number; nesterov: boolean }, trained: Trained): Rule {
  const buffer = trained.like('sgd.momentum_buffer');
  return {
    states: new Map([['momentum_buffer', buffer]]),
    update: (_, { lr, weightDecay: l2 }) =>
      wholeBuffers(trained, (views, i) => {
        momentum(trained.gpu, { ...views, m: buffer.buffers[i], mu, rest: 1, nesterov, l2 });
        sgd(trained.gpu, { ...views, lr, isUpdate: true });
      }),
  };
}

/** Updates each buffer as one array, with many tensors at a time. The padding between tensors is 0 and stays 0. */
function wholeBuffers(
  { weights, grads, clip }: Trained,
  record: (views: { clip: View; w: View; g: View; n: number }, i: number) => void,
): void {
  weights.buffers.forEach((w, i) => record({ clip, w, g: grads.buffers[i], n: w.bytes / 4 }, i));
}
