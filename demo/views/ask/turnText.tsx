/** A turn of the model: plain text, formatted tool calls, and the marked answer. */

import { CALL, readCall } from '../../state/tries/calls.ts';

const PARTS = new RegExp(`(${CALL.source}|#### [^\\n]*|<answer>[^<]*</answer>)`);

/** Shows the text of a turn. */
export function TurnText({ text }: { text: string }) {
  return (
    <>
      {text.split(PARTS).map((part, i) => {
        if (part.startsWith('<tool_call>'))
          return (
            <code class="call" key={i}>
              {readCall(part)?.shown ?? part}
            </code>
          );
        if (/^(####|<answer>)/.test(part))
          return (
            <b class="final" key={i}>
              {part}
            </b>
          );
        return part;
      })}
    </>
  );
}
