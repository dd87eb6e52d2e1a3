// Advantages of two real groups by six methods, without a GPU: install webgrpo (its tarball: README), then node twin.js
import { computeAdvantages } from 'webgrpo';

const A = { rewards: [1, 0, 1, 1, 0, 0, 0, 1], tokens: [33, 4, 33, 33, 4, 4, 4, 33] };
const B = { rewards: [1, 0, 0, 0, 0, 0, 0, 0], tokens: [36, 4, 4, 42, 4, 4, 4, 42] };

for (const [name, { rewards, tokens }] of Object.entries({ A, B })) {
  const groups = rewards.map(() => name);
  const masks = tokens.map((count) => new Uint8Array(count).fill(1));
  /**
   * @param {'grpo' | 'rloo' | 'max_rl' | 'opo' | 'grpo_passk'} estimator
   * @param {'group' | 'none'} scaleRewards
   */
  const of = (estimator, scaleRewards = 'group') =>
    computeAdvantages(estimator, { rewards, groups, masks }, { scaleRewards }).map(([a]) => Number(a.toFixed(3)));
  console.log(`group ${name}`);
  console.table({
    reward: rewards,
    grpo: of('grpo'),
    'dr. grpo': of('grpo', 'none'),
    rloo: of('rloo'),
    max_rl: of('max_rl'),
    opo: of('opo'),
    grpo_passk: of('grpo_passk'),
  });
}
