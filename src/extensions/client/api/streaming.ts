/** Text of a reply while it is drawn, and the channel that its chunks go through. */

import { heldBack } from '../../../rollout/decode/stopStrings.ts';
import type { ToolParser } from '../../../rollout/tools/parser.ts';
import { callsStart } from './reply.ts';

/**
 * Returns what may be shown of a reply's text so far: without what may turn out to be part of a character, of a stop string or of a call.
 * @param parser reads the calls that the text may hold; undefined = there are none
 */
export function shownText(drawn: string, stop: readonly string[], parser: ToolParser | undefined): string {
  const text = drawn.replace(/\uFFFD+$/, '');
  const ends = stop.map((one) => text.indexOf(one)).filter((at) => at >= 0);
  const free = text.slice(0, Math.min(text.length, ...ends, parser ? callsStart(text, parser) : Infinity));
  const known = free.slice(0, free.length - heldBack(free, parser ? [...stop, '<tool_call>'] : stop));
  return parser ? known.trimEnd() : known; // white space before a call is no part of the content
}

/** A list that is read while it is written. */
export class Channel<T> {
  readonly #items: T[] = [];
  #end: { error?: unknown } | undefined;
  #wake: () => void = () => {};

  push(item: T): void {
    this.#items.push(item);
    this.#wake();
  }

  /** @param failure its `error` is thrown to the reader, after the items before it */
  end(failure: { error?: unknown } = {}): void {
    this.#end = failure;
    this.#wake();
  }

  /** Reads to the end, once. Calls `onLeave` then, and when the reader stops before. */
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
