// node --test
import assert from 'node:assert/strict';
import { test } from 'node:test';
import task, { calculator } from './task.mjs';

/** Returns a sample as a reward receives it. @param {any} problem @param {string} response @returns {any} */
const sample = (problem, response) => ({ problem, response, messages: [{ role: 'assistant', content: response }] });
/** @type {any} */
const call = {};

test('the right answer earns 1, another one 0', async () => {
  for (const problem of [await task.train(0, 1), ...(await task.heldOut(3))]) {
    assert.deepEqual(await task.reward(sample(problem, `#### ${problem.answer}`)), { score: 1, acc: 1 });
    assert.deepEqual(await task.reward(sample(problem, `#### ${problem.answer}0`)), { score: 0, acc: 0 });
  }
});

test('no held-out problem is trained on', async () => {
  const heldOut = new Set((await task.heldOut(1000)).map(({ id }) => id));
  for (let index = 0; index < 2000; index++) assert.ok(!heldOut.has((await task.train(index, 1)).id));
});

test('the tool computes, and says what it does not understand', () => {
  assert.equal(calculator.execute({ expression: '12+30' }, call), '42');
  assert.throws(() => calculator.execute({ expression: '12 plus 30' }, call), /write one operation/);
});
