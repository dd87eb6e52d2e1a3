// The pull of seven losses at twelve ratios, without a GPU: install webgrpo (its tarball: README), then node twin.js
import { POLICY_LOSSES } from 'webgrpo';

const RATIOS = [0.05, 0.2, 0.5, 0.7, 0.9, 1, 1.1, 1.25, 1.5, 2, 4, 8];
const OLD = Math.log(0.1); // the token's log-prob when it was sampled

/** Losses with their papers' numbers. Vanilla without a clip is importance sampling. @type {[string, string, Record<string, number>][]} */
const LOSSES = [
  ['PPO', 'vanilla', { clipRatioLow: 0.2, clipRatioHigh: 0.2, clipRatioC: 3 }],
  ["DAPO's clip", 'vanilla', { clipRatioLow: 0.2, clipRatioHigh: 0.28, clipRatioC: 10 }],
  ['CISPO', 'cispo', { clipRatioLow: 1, clipRatioHigh: 4, wMax: 5 }],
  ['SAPO', 'sapo', { tauPos: 1, tauNeg: 1.05 }],
  ['GSPO', 'gspo', { clipRatioLow: 3e-4, clipRatioHigh: 4e-4 }],
  ['GMPO', 'geo_mean', { clipRatioLow: 0.4, clipRatioHigh: 0.4 }],
  ['No clip', 'vanilla', { clipRatioLow: 1, clipRatioHigh: Infinity, clipRatioC: Infinity }],
];

for (const advantage of [1, -1]) {
  console.log(`advantage ${advantage}`);
  const rows = LOSSES.map(([name, mode, numbers]) => {
    const { row, sequenceTerm } = POLICY_LOSSES[mode];
    const pulls = RATIOS.map((ratio) => {
      const token = { logp: OLD + Math.log(ratio), oldLogp: OLD, advantage, selected: false };
      const all = /** @type {any} */ ({ clipRatioC: 3, ...numbers });
      // A try of one token: the sum over the try equals the token's own term.
      const sequence = { length: 1, sum: sequenceTerm?.of(all, token) ?? 0, advantageSum: advantage };
      return [`r ${ratio}`, Number((-row(all, token, sequence).grad).toFixed(3)) + 0];
    });
    return [name, Object.fromEntries(pulls)];
  });
  console.table(Object.fromEntries(rows));
}
