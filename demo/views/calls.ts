/** Tool calls in the text of a turn, for a reader. */

/** Matches a call with its tags, also one that is cut off. */
export const CALL = /<tool_call>[\s\S]*?(?:<\/tool_call>|$)/g;

/** Returns the name of a call with its tags, and the call as `calculator(48/2)`; undefined if it cannot be read, or not yet. */
export function readCall(text: string): { name: string; shown: string } | undefined {
  try {
    const { name, arguments: args } = JSON.parse(text.replace(/<\/?tool_call>/g, '')) as Record<string, unknown>;
    if (typeof name !== 'string' || typeof args !== 'object' || args === null) return undefined;
    return { name, shown: `${name}(${Object.values(args).map(String).join(', ')})` };
  } catch {
    return undefined;
  }
}
