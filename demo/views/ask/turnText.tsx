/** A turn of the model: text as it is, tool calls as calls, its answer marked. */

export function TurnText({ text }: { text: string }) {
  const parts = text.split(/(<tool_call>[\s\S]*?(?:<\/tool_call>|$)|#### [^\n]*|<answer>[^<]*<\/answer>)/);
  return (
    <>
      {parts.map((part, i) => {
        if (part.startsWith('<tool_call>'))
          return (
            <code class="call" key={i}>
              {callOf(part)}
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

/** `calculator(48/2)`, or the text itself where it is no call that can be read, or not yet. */
function callOf(text: string): string {
  try {
    const { name, arguments: args } = JSON.parse(text.replace(/<\/?tool_call>/g, '')) as {
      name: string;
      arguments: Record<string, unknown>;
    };
    return `${name}(${Object.values(args).map(String).join(', ')})`;
  } catch {
    return text;
  }
}
