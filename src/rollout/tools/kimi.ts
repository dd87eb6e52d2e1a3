/** Tool calls of Kimi K2. */

import { checkJsonCall, taggedBlocks, type ToolCall, type ToolParser } from './call.ts';
import type { Tool } from '../../tasks/tool.ts';

const ARGUMENTS = '<|tool_call_argument_begin|>';

/**
 * Calls have the form `<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{...}<|tool_call_end|>
 * <|tool_calls_section_end|>`, with any number of calls per section. The id of a call, `functions.NAME:0`, is returned together with its
 * output.
 */
export const parseKimi: ToolParser = (text, tools) =>
  taggedBlocks(text, '<|tool_call_begin|>', '<|tool_call_end|>').map(({ body, closed }) =>
    closed ? readCall(body, tools) : { error: 'Error: <|tool_call_begin|> without <|tool_call_end|>' },
  );

parseKimi.stopToken = '<|im_end|>';

function readCall(body: string, tools: Tool[]): ToolCall {
  const at = body.indexOf(ARGUMENTS);
  if (at < 0) return { error: `Error: the tool call has no ${ARGUMENTS}` };
  const id = body.slice(0, at).trim();
  const name = /^(?:functions\.)?([\w.-]+?)(?::\d+)?$/.exec(id)?.[1];
  if (name === undefined) return { error: 'Error: the tool call is not named functions.NAME:0' };
  return { ...checkJsonCall(name, body.slice(at + ARGUMENTS.length), tools), id };
}
