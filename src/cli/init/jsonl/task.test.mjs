// node --test
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

/** @type {{ prompt: string, answer: string }[]} */
const rows = readFileSync(new URL('train.jsonl', import.meta.url), 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line));

test('every line has a prompt, and an answer that is a number', () => {
  for (const { prompt, answer } of rows) {
    assert.ok(prompt.trim().length > 0);
    assert.match(answer, /^-?\d+$/);
  }
});

test('no problem stands there twice, so that none of the held-out ones is trained on', () => {
  assert.equal(new Set(rows.map(({ prompt }) => prompt)).size, rows.length);
});
