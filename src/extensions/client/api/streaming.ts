/** Streams a reply: the text that can be shown while tokens are still sampled, and the channel that passes chunks to the reader. */

import { heldBack } from '../../../rollout/decode/stopStrings.ts';
import type { ToolParser } from '../../../rollout/tools/parser.ts';
import { callsStart } from './reply.ts';

/**
 * Returns the part of an unfinished reply's text that can already be sent. Holds back the end of the text while it can become part of a
 * character, a stop string or a tool call.
 * @param parser parser of tool calls; undefined if the reply has no calls
 */
export function shownText(drawn: string, stop: readonly string[], parser: ToolParser | undefined): string {
  const text = drawn.replace(/\uFFFD+$/, '');
  const ends = stop.map((one) => text.indexOf(one)).filter((at) => at >= 0);
  const free = text.slice(0, Math.min(text.length, ...ends, parser ? callsStart(text, parser) : Infinity));
  const known = free.slice(0, free.length - heldBack(free, parser ? [...stop, '<tool_call>'] : stop));
  return parser ? known.trimEnd() : known; // white space before a call is not part of the content
}

/** A queue whose reader waits for items that are added later. */
export class Channel<T> {
  readonly #items: T[] = [];
  #end: { error?: unknown } | undefined;
  #wake: () => void = () => {};

  push(item: T): void {
    this.#items.push(item);
    this.#wake();
  }

  /**
   * Ends the queue: no items follow.
   * @param failure its `error`, if any, is thrown to the reader after the last item
   */
  end(failure: { error?: unknown } = {}): void {
    this.#end = failure;
    this.#wake();
  }

  /** Yields the items until the queue ends. Only one reader is supported. Calls `onLeave` at the end, or when the reader stops earlier. */
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
