/** Content of a try: plain text, formatted tool calls, and tool outputs with the tool's name. */

import type { LoggedRollout } from '../../../src/runs/rollouts.ts';
import type { Message } from '../../../src/tasks/task.ts';
import { isErrorText } from '../../../src/tasks/toolOutput.ts';
import { CALL, readCall } from '../../state/tries/calls.ts';

const PARTS = new RegExp(`(${CALL.source})`);

/** Shows the messages of a try. */
export function Conversation({ shown: { messages, promptMessages } }: { shown: LoggedRollout }) {
  return (
    <div class="turns">
      {messages.slice(promptMessages).map((message, i, after) => (
        <Said key={i} message={message} tool={toolOf(after, i)} />
      ))}
    </div>
  );
}

function Said({ message: { role, content }, tool }: { message: Message; tool: string }) {
  if (role === 'assistant')
    return (
      <div class="message assistant">
        {content
          .split(PARTS)
          .filter((part) => part.trim() !== '')
          .map((part, i) =>
            part.startsWith('<tool_call>') ? <Call key={i} text={part} /> : <Text key={i} text={part} />,
          )}
      </div>
    );
  const who = role === 'tool' ? `${tool} result` : role === 'user' ? 'environment' : role;
  return (
    <p class={`message tool${isErrorText(content) ? ' failed' : ''}`}>
      <span class="who">{who}: </span>
      {content}
    </p>
  );
}

function Text({ text }: { text: string }) {
  const [, before, line, after] = /^([\s\S]*?)(#### [^\n]*)([\s\S]*)$/.exec(text) ?? [];
  if (line === undefined) return <span>{text.trim()}</span>;
  return (
    <span>
      {before.trim()}
      <b class="final">{line}</b>
      {after.trim()}
    </span>
  );
}

/** Shows a tool call. Text that cannot be parsed as a call is shown unchanged and marked. */
function Call({ text }: { text: string }) {
  const call = readCall(text);
  return <code class={call ? 'call' : 'call unreadable'}>{call?.shown ?? text}</code>;
}

/** Returns the name of the tool whose output message `i` is. Outputs are in the order of the calls before them. */
function toolOf(messages: readonly Message[], i: number): string {
  let turn = i;
  while (turn >= 0 && messages[turn].role !== 'assistant') turn--;
  const calls = messages[turn]?.content.match(CALL) ?? [];
  return readCall(calls[i - turn - 1] ?? '')?.name ?? 'tool';
}
