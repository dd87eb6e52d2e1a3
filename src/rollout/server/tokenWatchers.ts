/**
 * Creates the stop-string matcher and the tool-call guide of each request. Reads the vocabulary at first use.
 */

import type { Vocabulary } from '../../model/tokenizer/vocabulary.ts';
import { CallGuide, GuidedTurn } from '../constrained/guide.ts';
import { StopMatcher } from '../decode/stopStrings.ts';
import type { GenerateRequest } from '../types.ts';
import type { Watchers } from './job.ts';

/** Creates the token watchers of requests, and caches guides. */
export class TokenWatchers {
  readonly #makeVocabulary: (() => Vocabulary) | undefined;
  readonly #vocabSize: number;
  #vocabulary: Vocabulary | undefined;
  /** Guides by format and tools, as JSON. */
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

  #guideOf({ sampling: { toolCalls, toolCallFormat } }: GenerateRequest): GuidedTurn | undefined {
    if (!toolCalls || toolCalls.length === 0) return undefined;
    const key = JSON.stringify([toolCallFormat, toolCalls]);
    let guide = this.#guides.get(key);
    if (!guide) {
      guide = new CallGuide(toolCalls, this.#readVocabulary(), this.#vocabSize, toolCallFormat);
      this.#guides.set(key, guide);
    }
    return new GuidedTurn(guide);
  }

  #readVocabulary(): Vocabulary {
    if (!this.#makeVocabulary)
      throw new Error('This engine was made without a vocabulary, which stop strings and constrained tool calls need.');
    return (this.#vocabulary ??= this.#makeVocabulary());
  }
}
