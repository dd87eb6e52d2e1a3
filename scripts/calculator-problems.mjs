/**
 * Writes the problems of configs/calculator-smollm2-135m.yaml: one calculation each, on numbers that are too large for mental arithmetic.
 * The same files come out each time, and no two problems have the same story and numbers: `node scripts/calculator-problems.mjs`.
 */

import { mkdirSync, writeFileSync } from 'node:fs';

const FOLDER = 'configs/calculator';
const SIZES = { train: 240, test: 64 };

const CALL = { role: 'assistant', content: '{"name": "calculator", "parameters": {"expression": "12*34"}}' };

/** Few-shot examples before each question: two calls, and the answer after the second one. */
const EXAMPLES = [
  { role: 'system', content: 'Use the calculator.' },
  { role: 'user', content: 'Kim has 12 bags of 34 beans. How many beans?' },
  CALL,
  { role: 'user', content: 'Ann had 857 beads and lost 216. How many are left?' },
  { ...CALL, content: CALL.content.replace('12*34', '857-216') },
  { role: 'tool', content: '641' },
  { role: 'assistant', content: '641' },
];

let state = 1;
/** Returns a random integer from `low` to `high`, by Lehmer's generator. */
function draw(/** @type {number} */ low, /** @type {number} */ high) {
  state = (48271 * state) % (2 ** 31 - 1);
  return low + (state % (high - low + 1));
}

const NAMES = ['Tom', 'Mia', 'Sam', 'Ana', 'Leo', 'Eva', 'Ben', 'Zoe'];
const THINGS = ['apples', 'books', 'pens', 'cards', 'eggs', 'stamps', 'coins', 'nails'];

/** Generators of problems. Each returns a question and its answer. @type {((name: string, things: string) => [string, number])[]} */
const STORIES = [
  (name, things) => {
    const [a, b] = [draw(23, 98), draw(13, 97)];
    return [`${name} fills ${a} boxes with ${b} ${things} each. How many is that?`, a * b];
  },
  (name, things) => {
    const [a, b] = [draw(234, 987), draw(123, 987)];
    return [`${name} had ${a} ${things} and bought ${b} more. How many is that?`, a + b];
  },
  (name, things) => {
    const [a, b] = [draw(523, 987), draw(123, 487)];
    return [`${name} had ${a} ${things} and sold ${b}. How many are left?`, a - b];
  },
  (name, things) => {
    const [a, b] = [draw(13, 47), draw(12, 38)];
    return [`${name} shares ${a * b} ${things} among ${b} people. How many does each get?`, a];
  },
];

const seen = new Set();
mkdirSync(FOLDER, { recursive: true });
for (const [name, size] of Object.entries(SIZES)) {
  /** @type {string[]} */
  const lines = [];
  while (lines.length < size) {
    const story = STORIES[lines.length % STORIES.length];
    const [question, answer] = story(NAMES[draw(0, 7)], THINGS[draw(0, 7)]);
    const numbers = `${lines.length % STORIES.length}: ${question.replaceAll(/\D+/g, ' ')}`;
    if (seen.has(numbers)) continue;
    seen.add(numbers);
    const prompt = [...EXAMPLES, { role: 'user', content: question }];
    lines.push(JSON.stringify({ prompt, answer: String(answer) }));
  }
  writeFileSync(`${FOLDER}/${name}.jsonl`, `${lines.join('\n')}\n`);
}
