/**
 * reverse-text: a small task that tests whether training works at all. The model writes a few letters backwards. Half of the reward is for
 * letters in their right places, so that even an untrained model gets different rewards for different samples.
 */

import { checkOptions } from './checkOptions.ts';
import type { Rng } from '../../tasks/random.ts';
import { splitTask } from './split.ts';
import type { Problem, SyncTask } from '../../tasks/task.ts';

export const REVERSE_TEXT_OPTIONS = {
  /** Minimum and maximum number of letters in the text to reverse. */
  minLength: 2,
  maxLength: 3,
  /** Number of letters of the alphabet from which texts are made. */
  letters: 10,
};

/** Creates the reverse-text task: write a word backwards. Throws InputError if an option is out of range. */
export function reverseTextTask(options: Partial<typeof REVERSE_TEXT_OPTIONS> = {}): SyncTask {
  const o = { ...REVERSE_TEXT_OPTIONS, ...options };
  checkOptions('reverse-text', o, { minLength: [1, 1000], maxLength: [1, 1000], letters: [1, 26] });
  const { minLength, maxLength, letters } = o;
  const alphabet = 'abcdefghijklmnopqrstuvwxyz'.slice(0, letters);
  const draw = (rng: Rng) => {
    const text = Array.from({ length: rng.int(minLength, maxLength) }, () => rng.pick([...alphabet])).join('');
    const messages: Problem['messages'] = [{ role: 'user', content: text }];
    return { problem: { messages, answer: backwards(text), template: `${text.length} letters` }, key: text };
  };
  const { train, heldOut } = splitTask('reverse-text', draw);
  return {
    name: 'reverse-text',
    train,
    heldOut,
    reward({ problem, response }) {
      const acc = response === problem.answer ? 1 : 0;
      const score = (placed(response, problem.answer) + acc) / 2;
      return { score, acc, pred: response, extra: { similarity: similarity(response, problem.answer) } };
    },
    demonstrate: ({ answer }, rng, errorRate) => [
      { role: 'assistant', content: rng.uniform() < errorRate ? backwards(answer) : answer },
    ],
    tokenizer: { vocabSize: 263, wordShare: 0 },
  };
}

const backwards = (text: string) => [...text].reverse().join('');

/**
 * Returns the number of places at which both texts have the same letter, divided by the length of the longer text; 1 = the texts are equal.
 */
function placed(a: string, b: string): number {
  const right = [...b].filter((letter, i) => a[i] === letter).length;
  return right / Math.max(1, a.length, b.length);
}

/** Returns the length of the longest common subsequence as a fraction of that of the longer text; 1 = the texts are equal. */
export function similarity(a: string, b: string): number {
  if (a.length === 0 && b.length === 0) return 1;
  const row = new Array<number>(b.length + 1).fill(0);
  for (const letter of a) {
    let diagonal = 0;
    for (let j = 1; j <= b.length; j++) {
      const above = row[j];
      row[j] = b[j - 1] === letter ? diagonal + 1 : Math.max(above, row[j - 1]);
      diagonal = above;
    }
  }
  return row[b.length] / Math.max(a.length, b.length);
}
