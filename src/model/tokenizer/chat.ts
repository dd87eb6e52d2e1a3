/**
 * Text <-> token ids and the chat template, over the Hugging Face tokenizer and template libraries. No file access:
 * the caller hands in the parsed `tokenizer.json` and `tokenizer_config.json`.
 *
 * Two rules hold everywhere. Tokens in, tokens out: what the model sampled is never decoded and encoded again.
 * And what a user or a tool wrote is data: "<|im_end|>" in it is encoded as ordinary characters, never as the control
 * token of that name (Hugging Face's own apply_chat_template does not promise this).
 */

import { Tokenizer } from '@huggingface/tokenizers';
import { InputError } from '../../errors.ts';
import { type AddedToken, ControlTokens, type Marks, unusedMarks } from './controlTokens.ts';
import { ChatTemplate } from './template.ts';

/** As in `src/tasks/task.ts`, which is a layer above. */
interface ChatMessage {
  role: string;
  content: string;
  /** Of a tool's message: which call it answers. */
  name?: string;
  tool_call_id?: string;
  tool_calls?: unknown;
}

/** The tool calls that a sampled turn ended with, for templates that render outputs by them. */
export interface CalledTurn {
  /** One for each tool message, in order. */
  calls: readonly { id: string; name: string }[];
  /** The token that the turn ended with; absent where it was cut before one. */
  end?: number;
  /** The name of the control token that follows calls. */
  stopToken: string;
}

interface ChatOptions {
  /** Tool descriptions in the OpenAI function format, for templates that render them. */
  tools?: unknown[];
  /** End with the header of an assistant turn, so that the model writes one. Default true. */
  addGenerationPrompt?: boolean;
}

interface TokenizerOptions {
  eosTokenIds?: number[];
  /** Variables that every conversation's template gets beside the messages, e.g. Qwen3's enable_thinking. */
  chatTemplateKwargs?: Json;
}

type Json = Record<string, unknown>;

/** Roles whose text is the author's own and may hold control tokens; what any other says comes from outside. */
const TRUSTED_ROLES = ['system', 'assistant'];
/** Names that templates ask for; any other role is text from outside as well. */
const KNOWN_ROLES = ['user', 'tool', 'function', 'ipython'];

/** Characters of texts encoded lately that are kept: each takes a good part of a millisecond, and mostly the device waits. */
const KEPT_CHARACTERS = 4e6;

const QUESTION = { role: 'user', content: 'A question.' };

export class ChatTokenizer {
  /** Ids that end an assistant turn; the first is the one we append to demonstrations. */
  readonly eosTokenIds: number[];
  readonly padTokenId: number;
  /** V of the tokenizer: one more than the largest id. A model's embedding may have more rows. */
  readonly vocabSize: number;
  private readonly full: Tokenizer;
  /** The same tokenizer without added tokens: nothing it encodes can become a control token. */
  private readonly plain: Tokenizer;
  private readonly template: ChatTemplate | null;
  private readonly config: Json;
  private readonly control: ControlTokens;
  /** Whether text can become a control token's name on its way to the tokens. */
  private readonly normalizes: boolean;
  private readonly templateKwargs: Json;
  private readonly kept = new Map<string, Uint32Array>();
  private keptCharacters = 0;

  /** @param options eosTokenIds of a generation_config.json; absent = the config's `eos_token` is the only one */
  constructor(
    tokenizerJson: unknown,
    configJson: unknown,
    { eosTokenIds, chatTemplateKwargs = {} }: TokenizerOptions = {},
  ) {
    this.templateKwargs = chatTemplateKwargs;
    const json = asObject(tokenizerJson, 'tokenizer.json');
    this.config = asObject(configJson, 'tokenizer_config.json');
    try {
      const added = (json['added_tokens'] ?? []) as AddedToken[];
      // The library's constructor and its encode keep references, so each gets a copy of its own.
      this.full = new Tokenizer(structuredClone(json), this.config);
      this.control = new ControlTokens(added);
      this.plain = new Tokenizer(
        withoutAddedTokens(
          json,
          added.filter(({ id }) => this.control.isControl(id)),
        ),
        this.config,
      );
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw new InputError(
        `tokenizer.json cannot be read as a tokenizer (${reason}); it must be a file of the Hugging Face tokenizers library.`,
      );
    }
    this.normalizes = Boolean(json['normalizer']);
    this.template = readTemplate(this.config);
    // Not Math.max(...ids): a real vocabulary is too long an argument list.
    this.vocabSize = 1 + [...this.full.get_vocab(true).values()].reduce((a, b) => Math.max(a, b), -1);
    this.eosTokenIds = eosTokenIds ?? [this.tokenId(tokenText(this.config, 'eos_token'), 'eos_token')];
    const pad = this.config['pad_token'] ? tokenText(this.config, 'pad_token') : null;
    this.padTokenId = pad === null ? this.eosTokenIds[0] : this.tokenId(pad, 'pad_token');
  }

  /** Ids of a text in which names of control tokens mean the control tokens; nothing is added before or after. */
  encode(text: string): number[] {
    return text === '' ? [] : this.full.encode(text, { add_special_tokens: false }).ids;
  }

  /** Ids of a text from outside: no control token can come out, whatever it says. */
  encodePlain(text: string): number[] {
    return text === '' ? [] : this.plain.encode(text, { add_special_tokens: false }).ids;
  }

  /** Ids without a token (rows that only pad a model's embedding) decode to nothing. */
  decode(ids: Iterable<number>, options: { skipSpecialTokens?: boolean } = {}): string {
    const known = Array.from(ids).filter((id) => this.full.id_to_token(id) !== undefined);
    if (known.length === 0) return '';
    return this.full.decode(known, {
      skip_special_tokens: options.skipSpecialTokens ?? false,
      clean_up_tokenization_spaces: false,
    });
  }

  /** The conversation as the model's template writes it. To train or generate use `encodeChat`, which is safe. */
  applyChatTemplate(messages: ChatMessage[], options: ChatOptions = {}): string {
    if (!this.template) {
      throw new InputError(
        'tokenizer_config.json has no "chat_template"; add one or use the tokenizer of a chat model.',
      );
    }
    return this.template.render({
      ...specialTokenTexts(this.config),
      ...this.templateKwargs,
      messages,
      ...(options.tools?.length ? { tools: options.tools } : {}),
      add_generation_prompt: options.addGenerationPrompt ?? true,
    });
  }

  /** Ids of a conversation, by default with the header of the assistant turn that is to come. */
  encodeChat(messages: ChatMessage[], options: ChatOptions = {}): Uint32Array {
    return this.once(JSON.stringify(['chat', messages, options]), () => {
      const { messages: safe, marks } = this.defuse(messages);
      return Uint32Array.from(this.encodeMarked(this.applyChatTemplate(safe, options), marks));
    });
  }

  /**
   * The tokens that follow an assistant turn which ended with its end token: the rest of that turn's closing (a
   * newline, in ChatML), the tool messages, the next assistant header. Found as the difference to a dummy conversation,
   * whose assistant has `tool_calls` where `called` tells of some. Throws InputError for a template without such an end.
   */
  encodeContinuation(toolMessages: ChatMessage[], called?: CalledTurn): Uint32Array {
    return this.once(JSON.stringify(['continuation', toolMessages, called]), () => {
      const { messages, marks } = this.defuse(toolMessages);
      return Uint32Array.from(
        this.encodeMarked(called ? this.afterCalls(messages, called) : this.afterReply(messages), marks),
      );
    });
  }

  /** Id of a token by its text; undefined without one. */
  idOf(text: string): number | undefined {
    return this.full.token_to_id(text);
  }

  /**
   * The tokens encoded for the same key before, or now; the longest unused make room. A copy, which the caller may
   * transfer. A template that writes the date keeps that of the first time.
   */
  private once(key: string, encode: () => Uint32Array): Uint32Array {
    const known = this.kept.get(key);
    if (known) {
      this.kept.delete(key);
      this.kept.set(key, known);
      return known.slice();
    }
    const ids = encode();
    if (key.length > KEPT_CHARACTERS) return ids;
    this.kept.set(key, ids.slice());
    this.keptCharacters += key.length;
    for (const oldest of this.kept.keys()) {
      if (this.keptCharacters <= KEPT_CHARACTERS) break;
      this.kept.delete(oldest);
      this.keptCharacters -= oldest.length;
    }
    return ids;
  }

  private afterReply(toolMessages: ChatMessage[]): string {
    const reply = 'webgrpo-dummy-reply';
    const text = this.applyChatTemplate([QUESTION, { role: 'assistant', content: reply }, ...toolMessages]);
    const end = reply + this.full.id_to_token(this.eosTokenIds[0]);
    const at = text.indexOf(end);
    if (at < 0) {
      throw new InputError(
        `The chat template does not close an assistant message with ${JSON.stringify(end.slice(reply.length))}, the ` +
          'end token, so turns cannot be appended to sampled tokens; set eos_token to the token that ends a turn.',
      );
    }
    return text.slice(at + end.length);
  }

  /** After the end token where the template writes the drawn one, else from the stop token on, which stands for it. */
  private afterCalls(toolMessages: ChatMessage[], { calls, end, stopToken }: CalledTurn): string {
    const value = 'webgrpo-dummy-value';
    const toolCalls = calls.map(({ id, name }) => ({
      id,
      type: 'function',
      function: { name, arguments: { value } },
    }));
    const answers = toolMessages.map((message, i) => ({
      ...message,
      name: calls[i].name,
      tool_call_id: calls[i].id,
    }));
    const caller = { role: 'assistant', content: '', tool_calls: toolCalls };
    const text = this.applyChatTemplate([QUESTION, caller, ...answers]);
    const from = text.lastIndexOf(value);
    const stop = from < 0 ? -1 : text.indexOf(stopToken, from);
    const drawn = end === undefined ? stopToken : this.full.id_to_token(end)!;
    const drawnAt = from < 0 ? -1 : text.indexOf(drawn, from);
    if (end !== undefined && drawnAt >= 0 && (stop < 0 || drawnAt <= stop)) return text.slice(drawnAt + drawn.length);
    if (stop >= 0) return text.slice(stop);
    throw new InputError(
      `The chat template does not write ${stopToken} after an assistant's \`tool_calls\`, so tool outputs cannot be ` +
        "appended to sampled tokens; use the model's own template, or set rollout.multiTurn.format to the format it writes.",
    );
  }

  /** Hides every control token's name in what comes from outside. No marks where there is none, which is mostly so. */
  private defuse(messages: ChatMessage[]): { messages: ChatMessage[]; marks: Marks | null } {
    const hostile = messages.filter(
      (m) => !TRUSTED_ROLES.includes(m.role) && textsOf(m).some((text) => this.hasControl(text)),
    );
    if (hostile.length === 0) return { messages, marks: null };
    const marks = unusedMarks(messages.flatMap(textsOf).join(''));
    const hide = (text: string) => this.control.hide(text, marks);
    return { messages: messages.map((m) => (hostile.includes(m) ? inMessage(m, hide) : m)), marks };
  }

  private hasControl(text: string): boolean {
    return (
      this.control.occurIn(text) || (this.normalizes && this.encode(text).some((id) => this.control.isControl(id)))
    );
  }

  /** Splits at control tokens first and shows what was hidden afterwards, so that it stays ordinary text. */
  private encodeMarked(text: string, marks: Marks | null): number[] {
    if (marks === null) return this.encode(text);
    return this.control
      .split(text)
      .flatMap((part) => (typeof part === 'string' ? this.encodePlain(this.control.show(part, marks)) : [part.id]));
  }

  private tokenId(text: string, key: string): number {
    const id = this.full.token_to_id(text);
    if (id === undefined) {
      throw new InputError(`tokenizer_config.json: "${key}" is ${JSON.stringify(text)}, which tokenizer.json lacks.`);
    }
    return id;
  }
}

/** No control token's name is left to be reached: neither whole (ignore_merges) nor as a piece of a Unigram vocabulary. */
function withoutAddedTokens(json: Json, control: readonly AddedToken[]): Json {
  const plain = structuredClone(json);
  const vocab = (plain['model'] as Json)['vocab'];
  plain['added_tokens'] = [];
  plain['post_processor'] = null;
  const names = new Set(control.map(({ content }) => content));
  if (Array.isArray(vocab)) {
    // Its place is its id and its score counts for unknown text, so the piece stays, under a name that nobody can write.
    for (const piece of vocab as [string, number][]) if (names.has(piece[0])) piece[0] = crypto.randomUUID();
  } else if (vocab) {
    for (const name of names) delete (vocab as Json)[name];
  }
  return plain;
}

function readTemplate(config: Json): ChatTemplate | null {
  const source = config['chat_template'];
  // Some models ship several templates by name.
  const named = Array.isArray(source) ? (source as { name: string; template: string }[]) : null;
  const text = named ? named.find(({ name }) => name === 'default')?.template : source;
  return typeof text === 'string' ? new ChatTemplate(text) : null;
}

/** Every text of a message that a template may write: its content, a role that no template knows, and the like. */
function textsOf(message: ChatMessage): string[] {
  const texts: string[] = [];
  inMessage(message, (text) => {
    texts.push(text);
    return text;
  });
  return texts;
}

function inMessage(message: ChatMessage, change: (text: string) => string): ChatMessage {
  const { role, ...rest } = message;
  return { role: KNOWN_ROLES.includes(role) ? role : change(role), ...inTexts(rest, change) };
}

/** The same value with each text in it changed. */
function inTexts<T>(value: T, change: (text: string) => string): T {
  if (typeof value === 'string') return change(value) as T;
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((item: unknown) => inTexts(item, change)) as T;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, inTexts(item, change)])) as T;
}

/** `bos_token` and the like, which templates refer to; each is a string or an object with `content`. */
function specialTokenTexts(config: Json): Record<string, string> {
  const keys = ['bos_token', 'eos_token', 'pad_token', 'unk_token'].filter((key) => config[key]);
  return Object.fromEntries(keys.map((key) => [key, tokenText(config, key)]));
}

function tokenText(config: Json, key: string): string {
  const value = config[key];
  const text = typeof value === 'object' && value !== null ? (value as Json)['content'] : value;
  if (typeof text === 'string') return text;
  throw new InputError(`tokenizer_config.json: "${key}" must name a token, but is ${JSON.stringify(value)}.`);
}

function asObject(value: unknown, file: string): Json {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Json;
  throw new InputError(`${file} must hold a JSON object, but holds ${JSON.stringify(value)?.slice(0, 80)}.`);
}
