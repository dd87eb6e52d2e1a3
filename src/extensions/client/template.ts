/** Renders requests by the chat template. Also checks whether the template renders an earlier reply exactly as it was sampled. */

import { type ChatTokenizer, TextTooLongError } from '../../model/tokenizer/chat.ts';
import { lostRoles, OTHER_TEMPLATE } from '../../model/tokenizer/lostText.ts';
import type { ToolParser } from '../../rollout/tools/parser.ts';
import type { Tool } from '../../tasks/tool.ts';
import { refuse } from './api/apiError.ts';
import { type ChatMessage, templateMessage } from './api/messages.ts';
import type { CallRequest } from './api/request.ts';
import type { Reply } from './sequence.ts';

/** Renders the requests of clients by the model's chat template. */
export class CallTemplate {
  readonly tokenizer: ChatTokenizer;
  /** Parser of tool calls in replies. */
  readonly toolParser: ToolParser;
  /** Control token that ends a turn with tool calls, and its id. Undefined if the call format has none. */
  readonly stopToken: string | undefined;
  readonly stopTokenId: number | undefined;
  readonly #toolSchemasInPrompt: boolean;
  #writesCalls: boolean | undefined;
  #writesResults = false;

  /** @param toolSchemasInPrompt same as rollout.multiTurn.toolSchemasInPrompt */
  constructor(tokenizer: ChatTokenizer, toolParser: ToolParser, toolSchemasInPrompt: boolean) {
    this.tokenizer = tokenizer;
    this.toolParser = toolParser;
    this.stopToken = toolParser.stopToken;
    this.stopTokenId = this.stopToken === undefined ? undefined : tokenizer.idOf(this.stopToken);
    this.#toolSchemasInPrompt = toolSchemasInPrompt;
  }

  /** Returns the tokens that end a reply: those of the model, of the request, and of the call format. */
  stopTokenIds({ tools, sampling }: Pick<CallRequest, 'tools' | 'sampling'>): number[] {
    const { stopTokenId } = this;
    const end = tools.length > 0 && stopTokenId !== undefined ? [stopTokenId] : [];
    return [...new Set([...this.tokenizer.eosTokenIds, ...(sampling.stopTokenIds ?? []), ...end])];
  }

  /** Returns the text of a conversation, including the header of the next reply's turn. */
  render(messages: readonly ChatMessage[], tools: readonly Tool[]): string {
    return this.tokenizer.applyChatTemplate(this.#given(messages), this.#tools(tools));
  }

  /** Returns the tokens of a conversation. Names of control tokens inside messages are encoded as ordinary text. */
  encode(messages: readonly ChatMessage[], tools: readonly Tool[]): Uint32Array {
    const given = this.#given(messages);
    if (!this.#writesResults && messages.some(({ role }) => role === 'tool')) this.#expectResults(given, tools);
    try {
      return this.tokenizer.encodeChat(given, { ...this.#tools(tools), trusted: false });
    } catch (error) {
      if (!(error instanceof TextTooLongError)) throw error;
      throw refuse(
        'messages',
        'The messages have more text than any context holds. Shorten them.',
        'context_length_exceeded',
      );
    }
  }

  /** Throws ApiError if the template drops tool results: the agent would otherwise assume that the model has read them. */
  #expectResults(given: Parameters<ChatTokenizer['applyChatTemplate']>[0], tools: readonly Tool[]): void {
    const lost = lostRoles(given, (marked) => this.tokenizer.applyChatTemplate(marked, this.#tools(tools)));
    if (lost.includes('tool'))
      throw refuse(
        'messages',
        `The chat template leaves out tool results, so the model never reads them. ${OTHER_TEMPLATE}`,
      );
    this.#writesResults = true;
  }

  /**
   * True if `rendered`, a longer conversation, starts with the text that was rendered before `reply` was sampled, and then has the text of
   * the reply. False, for example, if the template drops the reasoning of earlier turns.
   */
  keeps(reply: Reply, rendered: string): boolean {
    if (!rendered.startsWith(reply.rendered)) return false;
    return squeezed(rendered.slice(reply.rendered.length)).startsWith(squeezed(reply.content));
  }

  /** True if the messages can be appended as tokens after a reply, without rendering the whole conversation again. */
  canFollow(reply: Reply, messages: readonly ChatMessage[]): boolean {
    if (!messages.every(({ role }) => role === 'user' || role === 'tool')) return false;
    if (this.stopToken === undefined || reply.calls.length === 0) return true;
    // A template with a control token after calls renders tool outputs next to the calls that they answer, so each must answer a call of
    // this reply.
    return messages.every(({ toolCallId }) => reply.calls.some(({ id }) => id === toolCallId));
  }

  #tools(tools: readonly Tool[]): { tools?: unknown[] } {
    if (!this.#toolSchemasInPrompt || tools.length === 0) return {};
    const schemas = tools.map(({ name, description, parameters }) => {
      return { type: 'function', function: { name, description, parameters } };
    });
    return { tools: schemas };
  }

  #given(messages: readonly ChatMessage[]) {
    return messages.map((message) => {
      const { toolCalls, content } = message;
      if (!toolCalls || this.#templateWritesCalls) return templateMessage(message, this.tokenizer);
      const calls = toolCalls.map(({ name, arguments: args }) => {
        return `<tool_call>\n{"name": ${JSON.stringify(name)}, "arguments": ${args}}\n</tool_call>`;
      });
      return { role: 'assistant', content: [content, ...calls].filter((part) => part !== '').join('\n') };
    });
  }

  /** True if the template renders tool_calls. If not, calls are written into the content, in the Hermes format. */
  get #templateWritesCalls(): boolean {
    return (this.#writesCalls ??= this.tokenizer
      .applyChatTemplate([
        { role: 'user', content: 'A question.' },
        {
          role: 'assistant',
          content: '',
          tool_calls: [{ id: 'probe-0', type: 'function', function: { name: 'webgrpo_probe', arguments: {} } }],
        },
      ])
      .includes('webgrpo_probe'));
  }
}

/** Returns the text without white space, for comparisons: templates trim and add white space. */
const squeezed = (text: string): string => text.replace(/\s+/g, '');
