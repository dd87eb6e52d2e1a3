// node --test
import assert from 'node:assert/strict';
import { test } from 'node:test';
import task from './task.mjs';

/**
 * Returns a sample with the fields that the reward reads.
 * @param {any} problem
 * @param {string} response
 * @returns {any}
 */
const sample = (problem, response) => ({ problem, response, messages: [{ role: 'assistant', content: response }] });
/** @type {any} */
const call = {};

/** @type {any} */
const rng = {
  uniform: () => 0.5,
  int: (/** @type {number} */ low) => low,
  pick: (/** @type {any[]} */ items) => items[0],
};
/** Returns the messages of a right solution. @param {any} problem */
const solution = async (problem) => (await task.demonstrate?.(problem, rng, 0)) ?? [];

test('a right solution earns 1, another answer 0', async () => {
  for (const problem of [await task.train(0, 1), ...(await task.heldOut(3))]) {
    const { content } = (await solution(problem)).slice(-1)[0];
    assert.deepEqual(await task.reward(sample(problem, content)), { score: 1, acc: 1 });
    assert.deepEqual(await task.reward(sample(problem, `${content}0`)), { score: 0, acc: 0 });
  }
});

test('no held-out problem is trained on', async () => {
  const heldOut = new Set((await task.heldOut(1000)).map(({ id }) => id));
  for (let index = 0; index < 2000; index++) assert.ok(!heldOut.has((await task.train(index, 1)).id));
});

test('the tools return what the solution says that they return', async () => {
  const messages = await solution(await task.train(0, 1));
  for (const [i, { content }] of messages.entries()) {
    const [, text] = /<tool_call>(.*)<\/tool_call>/.exec(content) ?? [];
    if (text === undefined) continue;
    const { name, arguments: args } = JSON.parse(text);
    const tool = task.tools?.find((one) => one.name === name);
    assert.equal(await tool?.execute(args, call), messages[i + 1].content);
  }
});
