// node --test
import assert from 'node:assert/strict';
import { test } from 'node:test';
import task, { bookshop } from './task.mjs';

/**
 * In a run, the context of an environment has further fields, which this environment does not use.
 * @type {any}
 */
const context = {};
const start = async () => {
  const problem = await task.train(0, 1);
  const { state, observation } = await bookshop.reset(problem, context);
  return { problem, observation, at: { ...context, state } };
};

test('a right answer ends the sample, a late one is worth less', async () => {
  const { problem, observation, at } = await start();
  assert.match(String(observation), /^Tom has \d+ books/);
  assert.deepEqual(bookshop.step?.('I do not know', at), { text: 'wrong', done: false });
  assert.deepEqual(bookshop.step?.(`#### ${problem.answer}`, at), { text: 'right', reward: 0.5, done: true });
  /** @type {any} */
  const sample = { problem, turnRewards: [0, 0.5] };
  assert.deepEqual(await task.reward(sample), { score: 0.5, acc: 0 });
});

test('no held-out problem is trained on', async () => {
  const heldOut = new Set((await task.heldOut(1000)).map(({ id }) => id));
  for (let index = 0; index < 2000; index++) assert.ok(!heldOut.has((await task.train(index, 1)).id));
});

test('the tool computes on the state of its sample, and says what it does not understand', async () => {
  const [{ at }, other] = [await start(), await start()];
  const [calculator] = bookshop.tools;
  assert.equal(calculator.execute({ expression: '12+30' }, at), '42');
  assert.throws(() => calculator.execute({ expression: '12 plus 30' }, at), /write one operation/);
  assert.deepEqual([at.state.sums, other.at.state.sums], [1, 0]);
});
