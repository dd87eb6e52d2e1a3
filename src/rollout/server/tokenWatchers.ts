/** Creates the matcher of stop strings and the guide of tool calls for each request. Reads the vocabulary at first use. */

import { extensionPoint } from '../../extensionPoint.ts';
import type { Vocabulary } from '../../model/tokenizer/vocabulary.ts';
import { StopMatcher } from '../decode/stopStrings.ts';
import { type GenerateRequest, isConstrained, type SamplingParams } from '../types.ts';
import type { TurnGuide, Watchers } from './job.ts';

/** Starts the guide of a turn with these settings. */
type Guides = (sampling: SamplingParams) => TurnGuide;

/** Guides for one vocabulary. @param vocabSize tokens that the model can sample */
export const turnGuides = extensionPoint<(vocabulary: Vocabulary, vocabSize: number) => Guides>('Constrained turns');

/** Creates the stop-string matcher and the guide of each request. */
export class TokenWatchers {
  readonly #makeVocabulary: (() => Vocabulary) | undefined;
  readonly #vocabSize: number;
  #vocabulary: Vocabulary | undefined;
  #guides: Guides | undefined;

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

  #guideOf({ sampling }: GenerateRequest): TurnGuide | undefined {
    if (!isConstrained(sampling)) return undefined;
    this.#guides ??= turnGuides.get()(this.#readVocabulary(), this.#vocabSize);
    return this.#guides(sampling);
  }

  #readVocabulary(): Vocabulary {
    if (!this.#makeVocabulary)
      throw new Error('This engine was made without a vocabulary, which stop strings and constrained tool calls need.');
    return (this.#vocabulary ??= this.#makeVocabulary());
  }
}
