// The task's reward and yours on tries that were made to cheat, without a GPU: install webgrpo (its tarball: README), then node twin.js
import { gsm8kToolTask } from 'webgrpo';

/** Your reward: change it until the two columns agree. @param {{ text: string, answer: string }} tried */
function reward({ text, answer }) {
  return text.includes(answer) ? 1 : 0;
}

const TRIES = [
  ['#### 9', '9'],
  ['#### 99', '9'],
  ['9, 8, 7, 6 or 5', '9'],
  ['I think 9', '9'],
  ['#### 9\nNo, it is\n#### 8', '9'],
  ['#### 8\nNo, it is\n#### 9', '9'],
  ['#### 1,234', '1234'],
  ['#### -9', '9'],
  ['####9', '9'],
  ['#### 9 apples', '9'],
  ['#### 9.5', '9'],
  ['', '9'],
];

const task = gsm8kToolTask();
const rows = TRIES.map(([text, answer]) => {
  const sample = /** @type {any} */ ({ response: text, problem: { answer }, numToolCalls: 0, numToolErrors: 0 });
  const { score } = /** @type {import('webgrpo').Reward} */ (task.reward(sample));
  return { text: text.replaceAll('\n', ' / '), answer, task: score, yours: reward({ text, answer }) };
});
console.table(rows);
