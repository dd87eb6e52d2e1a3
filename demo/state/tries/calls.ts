/** Formats tool calls in the text of a turn. */

/** Matches a tool call with its tags, even if the call is incomplete. */
export const CALL = /<tool_call>[\s\S]*?(?:<\/tool_call>|$)/g;

/**
 * Reads a tool call with its tags. Returns the tool's name, and the call as `calculator(48/2)`; undefined if the call is invalid or
 * incomplete.
 */
export function readCall(text: string): { name: string; shown: string } | undefined {
  try {
    const { name, arguments: args } = JSON.parse(text.replace(/<\/?tool_call>/g, '')) as Record<string, unknown>;
    if (typeof name !== 'string' || typeof args !== 'object' || args === null) return undefined;
    return { name, shown: `${name}(${Object.values(args).map(String).join(', ')})` };
  } catch {
    return undefined;
  }
}
