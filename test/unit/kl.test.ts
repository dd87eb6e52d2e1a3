import { expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { KL_TYPES, klPenalty, updateKlController } from '../../src/grpo/losses/kl.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { Task } from '../../src/tasks/task.ts';
import { readBack, scriptedEngine, withoutTimes } from '../scriptedRuns.ts';

const LOGP = -1.3;
const OLD = -1.1;
const slopeOf = (type: string, ref: number, valueClamp = Infinity) => {
  const h = 1e-6;
  const at = (l: number) => klPenalty(type, l, ref, { oldLogp: OLD, valueClamp }).value;
  return (at(LOGP + h) - at(LOGP - h)) / (2 * h);
};

test.each(['k1', 'k2', 'k3', 'abs', 'r*k3', 'kl', 'mse', 'low_var_kl'])(
  '%s: gradient is the slope of the value',
  (type) => {
    for (const d of [-3, -0.2, 0.1, 2.5]) {
      const { grad } = klPenalty(type, LOGP, LOGP - d, { oldLogp: OLD });
      expect(grad).toBeCloseTo(slopeOf(type, LOGP - d), 6);
    }
  },
);

test.each(['k1+', 'k3+', 'abs+'])('%s: value of the plain one, gradient of k2', (type) => {
  expect(klPenalty(type, LOGP, -2).value).toBe(klPenalty(type.slice(0, -1), LOGP, -2).value);
  expect(klPenalty(type, LOGP, -2).grad).toBeCloseTo(0.7, 12);
});

test('r*k3 has the gradient r * k1: unbiased off policy', () => {
  const { grad } = klPenalty('r*k3', LOGP, -2, { oldLogp: OLD });
  expect(grad).toBeCloseTo(Math.exp(LOGP - OLD) * 0.7, 12);
  expect(() => klPenalty('r*k3', LOGP, -2)).toThrow('KL type "r*k3" needs the sampling log-prob (oldLogp).');
});

test("a collapsed policy keeps its gradient with our KL, and loses it with verl's clamp", () => {
  expect(klPenalty('k3', -9, -1, { valueClamp: 10 })).toEqual({ value: 10, grad: 0 });
  expect(klPenalty('k3', -9, -1).grad).toBeCloseTo(1 - Math.exp(8), 6);
  const far = klPenalty('k3', -900, -1);
  expect(Number.isFinite(far.value)).toBe(true);
  expect(far.grad).toBeCloseTo(1 - Math.exp(20), 0);
  expect(klPenalty('k3', -1, -900).grad).toBeCloseTo(1, 12);
});

test('unknown types are named', () => {
  expect(() => klPenalty('full', 0, 0)).toThrow(`Unknown KL type "full"; known: ${KL_TYPES.join(', ')}.`);
});

test('the adaptive coefficient moves towards the target, at most 20% of samples / horizon a step', () => {
  const controller = { type: 'adaptive' as const, klCoef: 0.1, targetKl: 0.5, horizon: 100 };
  expect(updateKlController(controller, 5, 50).klCoef).toBeCloseTo(0.1 * 1.1, 12);
  expect(updateKlController(controller, 0.45, 50).klCoef).toBeCloseTo(0.1 * 0.95, 12);
  expect(updateKlController({ ...controller, type: 'fixed' }, 5, 50).klCoef).toBe(0.1);
});

test('a run adapts the coefficient after each step, and resumes with it and with the refreshed reference', async () => {
  const config = resolveTrainConfig({
    ...{ name: 'kl', model: { path: 'x' }, rollout: { n: 4 } },
    data: { trainBatchSize: 2, maxPromptLength: 64, maxResponseLength: 8 },
    algorithm: { useKlInReward: true, klCtrl: { type: 'adaptive', klCoef: 0.5, horizon: 40 } },
    trainer: { refUpdateFreq: 1, refMixupAlpha: 0.5 },
  });
  const task: Task = {
    name: 'length',
    train: (index) => ({ id: `${index}`, messages: [{ role: 'user', content: `${index} plus 3` }], answer: '' }),
    heldOut: () => [],
    reward: ({ response }) => ({ score: response.length % 7, acc: 0 }),
  };
  const trainerOf = () => new GrpoTrainer({ config, task, engine: scriptedEngine({ withReference: true }) });
  const trainer = trainerOf();
  await trainer.step();
  const middle = readBack(await trainer.checkpoint());
  const { metrics } = await trainer.step();
  // The KL of the first step is 0, which lowers the coefficient by 20% x 8 samples / 40.
  expect(metrics['actor/reward_kl_penalty_coeff']).toBeCloseTo(0.5 * 0.96, 12);
  const resumed = trainerOf();
  await resumed.restore(middle);
  expect(withoutTimes([(await resumed.step()).metrics])).toEqual(withoutTimes([metrics]));
});
