/** Tool calls of gpt-oss, in OpenAI's harmony format: a call is a message with a recipient. */

import { checkJsonCall, type ToolCall, type ToolParser } from './call.ts';

/**
 * A call has the form `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>`. The recipient can also be in the
 * role, where chat templates write it. Messages without a recipient (analysis, final) are not calls, whatever their text is.
 */
export const parseGptOss: ToolParser = (text, tools) => {
  const calls: ToolCall[] = [];
  // The prompt ends with "<|start|>assistant", so the text of a turn starts in the middle of a message header.
  for (const message of text.split(/<\|(?:end|call|return|start)\|>/)) {
    const at = message.indexOf('<|message|>');
    const recipient = /(?:^|\s)to=([^\s<]+)/.exec(at < 0 ? '' : message.slice(0, at))?.[1];
    if (recipient === undefined || recipient === 'user' || recipient === 'all') continue;
    const name = recipient.replace(/^functions\./, '');
    calls.push(checkJsonCall(name, message.slice(at + '<|message|>'.length), tools));
  }
  return calls;
};

parseGptOss.stopToken = '<|call|>';
