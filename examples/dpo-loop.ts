import type { CustomLoss } from 'webgrpo';
import type { Learner, Row } from 'webgrpo/learner';

/** DPO (arXiv:2305.18290) over pairs of rows: chosen, rejected, chosen, rejected, ... */
export const dpo =
  (beta: number): CustomLoss =>
  ({ logProbs, refLogProbs, seqStart }) => {
    const pairs = (seqStart.length - 1) / 2;
    const ratio = logProbs.map((logProb, e) => logProb - refLogProbs![e]);
    const sum = (s: number) => ratio.subarray(seqStart[s], seqStart[s + 1]).reduce((a, b) => a + b, 0);
    const dLogProbs = new Float32Array(logProbs.length);
    let loss = 0;
    for (let s = 0; s < 2 * pairs; s += 2) {
      const wrong = 1 / (1 + Math.exp(beta * (sum(s) - sum(s + 1))));
      loss -= Math.log(1 - wrong) / pairs;
      dLogProbs.fill((-beta * wrong) / pairs, seqStart[s], seqStart[s + 1]);
      dLogProbs.fill((beta * wrong) / pairs, seqStart[s + 1], seqStart[s + 2]);
    }
    return { dLogProbs, loss };
  };

export async function prefer(learner: Learner, pairs: Row[]) {
  const { logProbs } = await learner.logProbs(pairs, { reference: true });
  const rows = pairs.map((row, i) => ({ ...row, refLogProbs: logProbs[i] }));
  const { loss } = await learner.forwardBackward(rows, dpo(0.1));
  await learner.optimStep({ lr: 1e-3 });
  return loss;
}
