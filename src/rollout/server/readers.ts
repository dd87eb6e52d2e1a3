/** What looks into the tokens that are drawn: stop strings and tool calls that must stay valid. Made when first asked for. */

import type { Vocabulary } from '../../model/tokenizer/vocabulary.ts';
import { CallGuide } from '../constrained/guide.ts';
import type { Job } from './job.ts';
import { StopMatcher } from '../decode/stopStrings.ts';
import type { GenerateRequest } from '../types.ts';

export class Readers {
  readonly #makeVocabulary: (() => Vocabulary) | undefined;
  readonly #vocabSize: number;
  #vocabulary: Vocabulary | undefined;
  /** By format and tools, as JSON. */
  readonly #guides = new Map<string, CallGuide>();

  constructor(vocabSize: number, makeVocabulary: (() => Vocabulary) | undefined) {
    this.#vocabSize = vocabSize;
    this.#makeVocabulary = makeVocabulary;
  }

  of(request: GenerateRequest): Pick<Job, 'stops' | 'guided'> {
    return { stops: this.#stopsOf(request), guided: this.#guidedOf(request) };
  }

  #stopsOf({ sampling: { stop = [], minNewTokens } }: GenerateRequest): StopMatcher | undefined {
    return stop.length === 0 ? undefined : new StopMatcher(stop, this.#readVocabulary(), minNewTokens);
  }

  #guidedOf({ sampling: { toolCalls, toolCallFormat } }: GenerateRequest): Job['guided'] {
    if (!toolCalls || toolCalls.length === 0) return undefined;
    const key = JSON.stringify([toolCallFormat, toolCalls]);
    let guide = this.#guides.get(key);
    if (!guide) {
      guide = new CallGuide(toolCalls, this.#readVocabulary(), this.#vocabSize, toolCallFormat);
      this.#guides.set(key, guide);
    }
    return { guide, state: guide.start };
  }

  #readVocabulary(): Vocabulary {
    if (!this.#makeVocabulary)
      throw new Error('This engine was made without a vocabulary, which stop strings and constrained tool calls need.');
    return (this.#vocabulary ??= this.#makeVocabulary());
  }
}
