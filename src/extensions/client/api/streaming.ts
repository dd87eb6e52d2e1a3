/** Returns the visible text of a reply while it is being sampled, and provides the channel for its chunks. */

import { heldBack } from '../../../rollout/decode/stopStrings.ts';
import type { ToolParser } from '../../../rollout/tools/parser.ts';
import { callsStart } from './reply.ts';

/**
 * Returns the part of a reply's text that can be shown so far. A tail that can become part of a character, a stop string or a call is held
 * back.
 * @param parser parses calls in the text; undefined if the reply can have none
 */
export function shownText(drawn: string, stop: readonly string[], parser: ToolParser | undefined): string {
  const text = drawn.replace(/\uFFFD+$/, '');
  const ends = stop.map((one) => text.indexOf(one)).filter((at) => at >= 0);
  const free = text.slice(0, Math.min(text.length, ...ends, parser ? callsStart(text, parser) : Infinity));
  const known = free.slice(0, free.length - heldBack(free, parser ? [...stop, '<tool_call>'] : stop));
  return parser ? known.trimEnd() : known; // white space before a call is not part of the content
}

/** A list that can be read while items are still added. */
export class Channel<T> {
  readonly #items: T[] = [];
  #end: { error?: unknown } | undefined;
  #wake: () => void = () => {};

  push(item: T): void {
    this.#items.push(item);
    this.#wake();
  }

  /** Ends the list. @param failure its `error` is thrown to the reader after the items before it */
  end(failure: { error?: unknown } = {}): void {
    this.#end = failure;
    this.#wake();
  }

  /** Yields items until the end, for one reader. Calls `onLeave` at the end, or when the reader stops earlier. */
  async *read(onLeave: () => void): AsyncGenerator<T, undefined> {
    try {
      while (this.#items.length > 0 || !this.#end) {
        if (this.#items.length > 0) yield this.#items.shift()!;
        else await new Promise<void>((resolve) => (this.#wake = resolve));
      }
      if ('error' in this.#end) throw this.#end.error;
    } finally {
      onLeave();
    }
  }
}
