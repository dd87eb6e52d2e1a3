/** Runs two steps of lesson 3's loop on the GPU. On SwiftShader they are the recorded ones. */

import { expect, test } from 'vitest';
import { config, train } from '../../demo/lessons/3-run/run.js';
import { RECORDED } from '../../demo/lessons/3-run/stills.ts';
import type { ShownStep } from '../../demo/lessons/kit/runLoop.ts';
import { createLocalEngine, engineSizes } from '../../src/index.ts';
import { readCheckpoint } from '../../src/node.ts';

const adapter = await navigator.gpu.requestAdapter();
const onSwiftShader = /swiftshader/i.test(`${adapter?.info.architecture} ${adapter?.info.description}`);

test('the loop of lesson 3 trains on the GPU as it was recorded', { timeout: 240_000 }, async () => {
  const engine = await createLocalEngine({
    ...engineSizes(config),
    ...(await readCheckpoint('checkpoints/reverse-text')),
  });
  const steps: ShownStep[] = [];
  await train({ engine, show: (step) => steps.push(step), steps: 2 });
  engine.destroy();
  const means = steps.map(({ rewards }) => Number((rewards.reduce((a, b) => a + b) / 256).toPrecision(4)));
  if (onSwiftShader) expect(means).toEqual(RECORDED.runs[0].reward.slice(0, 2));
  for (const { gradNorm, metrics } of steps) {
    expect(gradNorm).toBeGreaterThan(0);
    expect(metrics['actor/pg_loss']).toBeCloseTo(0, 4);
  }
});
