import { registerPolicyLoss } from 'webgrpo';

registerPolicyLoss('by_batch', ({ logProbs, advantages, weights }) => ({
  loss: logProbs.reduce((sum, logp, e) => sum - weights[e] * advantages[e] * logp, 0),
  dLogProbs: advantages.map((a, e) => -weights[e] * a),
}));
