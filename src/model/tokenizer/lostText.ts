/**
 * Finds messages that a chat template leaves out. A template without a branch for a role skips messages of that role
 * without an error. Therefore marker texts are rendered in place of the messages' texts, and then searched for in the
 * result.
 */

import { InputError } from '../../errors.ts';
import { TemplateStopped } from './template.ts';

interface TextMessage {
  role: string;
  content: string;
  /** Tool calls in the form of OpenAI's API. */
  tool_calls?: unknown;
}

/** How error messages name the messages of each role. */
const NAMES: Readonly<Record<string, string>> = {
  system: 'system messages',
  user: 'user messages',
  assistant: 'earlier assistant messages',
  tool: 'tool results',
  tool_calls: 'tool calls',
};

/** Advice at the end of every error message about a template. */
export const OTHER_TEMPLATE =
  'Use a template that writes them: set model.customChatTemplate, or "chat_template" in tokenizer_config.json.';

/** A marker has only letters and digits, because templates trim, quote and escape texts, and some change their case. */
export const markerOf = (number: number): string => `webgrpomarker${number}x`;

/** True if the template's output contains the marker. */
export const isWritten = (text: string, marker: string): boolean => text.toLowerCase().includes(marker);

/** Name of a role's messages in an error message. */
export const namedRole = (role: string): string => NAMES[role] ?? `messages of the role ${JSON.stringify(role)}`;

/**
 * Returns the roles of the messages whose text `render` leaves out, in order; `tool_calls` for a message whose calls it
 * leaves out.
 */
export function lostRoles<M extends TextMessage>(messages: readonly M[], render: (messages: M[]) => string): string[] {
  const marked = ({ tool_calls: calls, ...message }: M, i: number) =>
    isCalls(calls)
      ? { ...message, tool_calls: calls.map((call: unknown) => namedCall(call, markerOf(i))) }
      : { ...message, content: markerOf(i) };
  const text = render(messages.map((message, i) => marked(message, i) as unknown as M));
  const nameOf = ({ role, tool_calls: calls }: M) => (isCalls(calls) ? 'tool_calls' : role);
  return messages.flatMap((message, i) => (isWritten(text, markerOf(i)) ? [] : [nameOf(message)]));
}

/** An empty list is the same as none. */
const isCalls = (calls: unknown): calls is unknown[] => Array.isArray(calls) && calls.length > 0;

/** Returns a tool call with another function name. */
function namedCall(call: unknown, name: string): unknown {
  const { function: called, ...rest } = call as { function?: object };
  return { ...rest, function: { ...called, name } };
}

/** Checks that a template writes the messages that follow a sampled turn; each sequence of roles is checked once. */
export class WrittenRoles {
  readonly #known = new Set<string>();

  /**
   * Throws InputError if the template refuses or drops one of the messages. Otherwise a sample would continue without
   * these messages, and its transcript would look as if the model had read them. @param hasCalls true if `render`
   * writes tool calls before the messages
   */
  expect<M extends TextMessage>(messages: readonly M[], render: (messages: M[]) => string, hasCalls: boolean): void {
    const kind = JSON.stringify([messages.map(({ role }) => role), hasCalls]);
    if (this.#known.has(kind)) return;
    const names = (roles: readonly string[]) => [...new Set(roles)].map(namedRole).join(' and ');
    try {
      const lost = names(lostRoles(messages, render));
      if (lost !== '')
        throw new InputError(`The chat template leaves out ${lost}, so the model never reads them. ${OTHER_TEMPLATE}`);
    } catch (error) {
      if (!(error instanceof TemplateStopped)) throw error;
      const refused = names(messages.map(({ role }) => role));
      throw new InputError(
        `The chat template refuses ${refused} after an assistant message: ${error.reason} ${OTHER_TEMPLATE}`,
        { cause: error },
      );
    }
    this.#known.add(kind);
  }
}
