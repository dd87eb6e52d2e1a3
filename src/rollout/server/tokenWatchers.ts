/** Creates the matcher of stop strings and the guide of tool calls for each request. Reads the vocabulary at first use. */

import type { Vocabulary } from '../../model/tokenizer/vocabulary.ts';
import { isConstrained, type TurnConstraint } from '../constrained/callLanguage.ts';
import { CallGuide, GuidedTurn } from '../constrained/guide.ts';
import { TokenTrie } from '../constrained/trie.ts';
import { StopMatcher } from '../decode/stopStrings.ts';
import type { GenerateRequest } from '../types.ts';
import type { Watchers } from './job.ts';

/** Maximum number of cached guides. Clients can send any number of schemas, and each guide caches masks of the vocabulary. */
const MAX_GUIDES = 32;

/** Creates the stop-string matcher and the guide of each request, and caches guides. */
export class TokenWatchers {
  readonly #makeVocabulary: (() => Vocabulary) | undefined;
  readonly #vocabSize: number;
  #vocabulary: Vocabulary | undefined;
  #trie: TokenTrie | undefined;
  /** Guides by their constraint as JSON, the most recently used one last. */
  readonly #guides = new Map<string, CallGuide>();

  constructor(vocabSize: number, makeVocabulary: (() => Vocabulary) | undefined) {
    this.#vocabSize = vocabSize;
    this.#makeVocabulary = makeVocabulary;
  }

  of(request: GenerateRequest): Watchers {
    return { stops: this.#stopsOf(request), guide: this.#guideOf(request) };
  }

  #stopsOf({ sampling: { stop = [], minNewTokens } }: GenerateRequest): StopMatcher | undefined {
    return stop.length === 0 ? undefined : new StopMatcher(stop, this.#readVocabulary(), minNewTokens);
  }

  #guideOf({ sampling }: GenerateRequest): GuidedTurn | undefined {
    if (!isConstrained(sampling)) return undefined;
    const { toolCalls, toolCallFormat, requiredCalls, jsonSchema, stopTokenIds } = sampling;
    const constraint = { toolCalls, toolCallFormat, requiredCalls, jsonSchema, stopTokenIds } as TurnConstraint;
    const key = JSON.stringify(constraint);
    const guide = this.#guides.get(key) ?? this.#newGuide(constraint);
    this.#guides.delete(key);
    this.#guides.set(key, guide);
    const [oldest] = this.#guides.keys();
    if (this.#guides.size > MAX_GUIDES) this.#guides.delete(oldest);
    return new GuidedTurn(guide);
  }

  #newGuide(constraint: TurnConstraint): CallGuide {
    const vocabulary = this.#readVocabulary();
    this.#trie ??= new TokenTrie(vocabulary, this.#vocabSize);
    return new CallGuide(constraint, vocabulary, this.#vocabSize, this.#trie);
  }

  #readVocabulary(): Vocabulary {
    if (!this.#makeVocabulary)
      throw new Error('This engine was made without a vocabulary, which stop strings and constrained tool calls need.');
    return (this.#vocabulary ??= this.#makeVocabulary());
  }
}
