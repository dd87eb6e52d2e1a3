/** Text of a reply while it is drawn, and the channel that its chunks go through. */

import { heldBack } from '../../../rollout/decode/stopStrings.ts';
import type { ToolParser } from '../../../rollout/tools/parser.ts';
import { callsStart } from './reply.ts';

/** Tells text token by token, without what may turn out to be part of a character, of a stop string or of a call. */
export class ShownText {
  readonly #decode: (ids: readonly number[]) => string;
  readonly #stop: readonly string[];
  readonly #parser: ToolParser | undefined;
  readonly #ids: number[] = [];
  #shown = '';

  /** @param parser of the calls that the text may hold; absent = none */
  constructor(decode: (ids: readonly number[]) => string, stop: readonly string[], parser?: ToolParser) {
    this.#decode = decode;
    this.#stop = stop;
    this.#parser = parser;
  }

  /** Takes further tokens; returns what may be shown now and was not yet. */
  push(ids: readonly number[]): string {
    this.#ids.push(...ids);
    const text = this.#decode(this.#ids).replace(/\uFFFD+$/, '');
    const ends = this.#stop.map((stop) => text.indexOf(stop)).filter((at) => at >= 0);
    const free = text.slice(
      0,
      Math.min(text.length, ...ends, this.#parser ? callsStart(text, this.#parser) : Infinity),
    );
    if (!this.#parser) return this.#show(free.slice(0, free.length - heldBack(free, this.#stop)));
    const known = free.slice(0, free.length - heldBack(free, [...this.#stop, '<tool_call>']));
    return this.#show(known.trimEnd()); // white space before a call is no part of the content
  }

  /** What of the whole content was not shown yet. */
  end(content: string): string {
    return this.#show(content);
  }

  #show(text: string): string {
    if (!text.startsWith(this.#shown)) return ''; // held back: the rest comes with a later token
    const rest = text.slice(this.#shown.length);
    this.#shown = text;
    return rest;
  }
}

/** A list that is read while it is written. A reader that stops before its end calls `onLeave`. */
export class Channel<T> implements AsyncIterableIterator<T, undefined> {
  readonly #items: T[] = [];
  readonly #onLeave: () => void;
  #end: { failure?: { error: unknown } } | undefined;
  #wake: () => void = () => {};

  constructor(onLeave: () => void) {
    this.#onLeave = onLeave;
  }

  push(item: T): void {
    this.#items.push(item);
    this.#wake();
  }

  /** @param failure what the reader's loop throws, after the items before it */
  end(failure?: { error: unknown }): void {
    this.#end ??= failure ? { failure } : {};
    this.#wake();
  }

  async next(): Promise<IteratorResult<T, undefined>> {
    while (this.#items.length === 0 && !this.#end) await new Promise<void>((resolve) => (this.#wake = resolve));
    if (this.#items.length > 0) return { value: this.#items.shift()!, done: false };
    const { failure } = this.#end!;
    this.#end = {};
    if (failure) throw failure.error;
    return { value: undefined, done: true };
  }

  return(): Promise<IteratorResult<T, undefined>> {
    this.#items.length = 0;
    if (!this.#end) this.#onLeave();
    this.#end = {};
    return Promise.resolve({ value: undefined, done: true });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
