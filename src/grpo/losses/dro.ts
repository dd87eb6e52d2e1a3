import { defineLoss } from './types.ts';

/**
 * DRO, direct reward optimization: policy gradient with a quadratic pull towards the old policy,
 *
 *   l = -(A logp - (droBeta / 2) (logp - oldLogp)^2)
 *
 * droBeta must be positive: it has no default that works.
 */
export const dro = defineLoss({
  paper: 'arXiv:2405.19107',
  reports: ['actor/ppo_kl'],
  numbers: { droBeta: 0 },
  row({ droBeta }, { logp, oldLogp, advantage }) {
    if (!(droBeta > 0)) throw new RangeError(`Policy loss "dro" needs droBeta > 0, but it is ${droBeta}. Try 0.1.`);
    const logRatio = logp - oldLogp;
    return { loss: -(logp * advantage - 0.5 * droBeta * logRatio * logRatio), grad: -advantage + droBeta * logRatio };
  },
  wgsl: 'fn rowGrad(t: Token) -> f32 { return -t.advantage + params.droBeta * t.logRatio; }',
});
