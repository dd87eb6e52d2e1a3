/**
 * Problems that consist of slow searches. Each takes 0.2 to 3 s, log-uniform, by problem, sample and query, so that every run waits for the
 * same searches. Half of the samples are rewarded, so that training has work to do.
 */

import { setTimeout as sleep } from 'node:timers/promises';

const [MIN_MS, MAX_MS] = [200, 3000];

/** @type {() => import('webgrpo').Task} */
export default () => ({
  name: 'searches',
  train: (index) => problem(`${index}`),
  heldOut: (count) => Array.from({ length: count }, (_, i) => problem(`held-out-${i}`)),
  tools: [
    {
      name: 'search',
      description: 'Searches.',
      parameters: { type: 'object', properties: { query: { type: 'string' } }, required: ['query'] },
      async execute({ query }, { problem: { id }, sampleId }) {
        const sample = sampleId.slice(sampleId.lastIndexOf('.'));
        const ms = MIN_MS * (MAX_MS / MIN_MS) ** share(`${id}${sample} ${String(query)}`);
        await sleep(ms);
        return 'Lorum';
      },
    },
  ],
  reward: ({ problem: { id }, response }) => ({ score: share(`${id} ${response}`) < 0.5 ? 1 : 0, acc: 0 }),
});

/** @type {(id: string) => import('webgrpo').Problem} */
const problem = (id) => ({ id, messages: [{ role: 'user', content: `Find ${id}.` }], answer: '' });

/** Returns a number in [0, 1) as a hash of a text (FNV-1a with an additional mixing step). @param {string} text */
function share(text) {
  let hash = 0x811c9dc5;
  for (const letter of text) hash = Math.imul(hash ^ (letter.codePointAt(0) ?? 0), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return ((hash ^ (hash >>> 16)) >>> 0) / 2 ** 32;
}
