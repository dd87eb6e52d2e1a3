import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { RECIPES } from '../../src/grpo/config/recipes.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';

test('the table "Recipes" of docs/reference/algorithms.md is what the recipes resolve to', () => {
  const [, page = ''] = readFileSync('docs/reference/algorithms.md', 'utf8').split('\n## Recipes\n');
  const [recipes] = page.split('\n## ');
  const rows = recipes
    .split('\n')
    .filter((line) => line.startsWith('| ') && !line.startsWith('| ---') && !line.startsWith('| name'))
    .map((line) => line.split('|').map((cell) => cell.trim()));
  expect(rows.map(([, name]) => name)).toEqual(Object.keys(RECIPES));
  for (const [, name, lossMode, advEstimator, scaleRewards, lossAggMode, clip, , file] of rows) {
    const { actor, algorithm } = resolveTrainConfig({ name: 'd', model: { path: 'm' }, algorithm: { name } });
    const s = { ...actor, ...algorithm };
    expect([lossMode, advEstimator, scaleRewards, lossAggMode, clip]).toEqual([
      s.policyLoss.lossMode,
      s.advEstimator,
      s.scaleRewards,
      s.lossAggMode,
      `${s.clipRatioLow} / ${s.clipRatioHigh} / ${s.clipRatioC}`,
    ]);
    expect(existsSync(`src/grpo/losses/${file}`), file).toBe(true);
  }
});
