/** Guides of an engine's constrained turns. */

import type { Vocabulary } from '../../model/tokenizer/vocabulary.ts';
import type { SamplingParams, TurnConstraint } from '../../rollout/types.ts';
import { CallGuide, GuidedTurn } from './guide.ts';
import { TokenTrie } from './trie.ts';

/** Maximum number of cached guides. Clients can send any number of schemas. */
const MAX_GUIDES = 32;
/** Maximum number of bytes that the cached guides together may have when a turn starts. The guide of that turn may have more. */
const MAX_BYTES = 256 * 2 ** 20;

/** Returns a function that starts the guide of a turn. Turns with the same constraint share its masks. */
export function guidesFor(
  vocabulary: Vocabulary,
  vocabSize: number,
  maxBytes = MAX_BYTES,
): (sampling: SamplingParams) => GuidedTurn {
  const trie = new TokenTrie(vocabulary, vocabSize);
  /** Guides by their constraint as JSON, the most recently used one last. */
  const guides = new Map<string, CallGuide>();
  return ({ toolCalls, toolCallFormat, requiredCalls, jsonSchema, stopTokenIds }) => {
    const constraint = { toolCalls, toolCallFormat, requiredCalls, jsonSchema, stopTokenIds } as TurnConstraint;
    const key = JSON.stringify(constraint);
    const guide = guides.get(key) ?? new CallGuide(constraint, vocabulary, vocabSize, trie);
    guides.delete(key);
    guides.set(key, guide);
    let bytes = 0;
    for (const [used, { cachedBytes }] of [...guides].toReversed()) {
      bytes += cachedBytes;
      if (used !== key && bytes > maxBytes) guides.delete(used);
    }
    const [oldest] = guides.keys();
    if (guides.size > MAX_GUIDES) guides.delete(oldest);
    return new GuidedTurn(guide);
  };
}
