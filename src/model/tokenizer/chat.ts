/**
 * Converts text to token ids and back, and applies the chat template, with the Hugging Face tokenizer and template
 * libraries. No file access: the caller passes the parsed `tokenizer.json` and `tokenizer_config.json`.
 *
 * Two rules apply everywhere. First, sampled tokens are never decoded and encoded again. Second, text of users and
 * tools is data: "<|im_end|>" in it is encoded as ordinary characters, never as the control token of that name. Hugging
 * Face's own apply_chat_template does not guarantee the second.
 */

import { Tokenizer } from '@huggingface/tokenizers';
import { describe, InputError } from '../../errors.ts';
import { checkKeepsText, checkTokenizer } from './check.ts';
import {
  type AddedToken,
  ControlTokens,
  HiddenTexts,
  inTexts,
  withoutAddedTokens,
  withReadableConfig,
  withReadableTags,
} from './controlTokens.ts';
import { endNote, endTokens } from './endTokens.ts';
import { isWritten, markerOf, WrittenRoles } from './lostText.ts';
import { afterStart, preTokenizerOf } from './preTokenizer.ts';
import { ChatTemplates, PLAIN_TEMPLATE } from './template.ts';

/** Same type as in `src/tasks/task.ts`, from which this lower layer cannot import. */
interface ChatMessage {
  role: string;
  content: string;
  /** Name of the tool whose output a tool message contains. */
  name?: string;
  tool_call_id?: string;
  tool_calls?: unknown;
}

/** A sampled turn that ends with tool calls. Some templates need the calls to render the tools' outputs. */
export interface CalledTurn {
  /** One call per tool message, in order. */
  calls: readonly { id: string; name: string }[];
  /** Token that ended the turn. Undefined if the turn was truncated. */
  end?: number;
  /** Text of the control token that closes tool calls. */
  stopToken: string;
}

interface ChatOptions {
  /** Tool descriptions in the OpenAI function format, for templates that render them. */
  tools?: unknown[];
  /** True to end with the header of an assistant turn, after which the model writes its reply. Default: true. */
  addGenerationPrompt?: boolean;
  /**
   * True if system and assistant messages are written by the task's author and can contain control tokens. Default:
   * true.
   */
  trusted?: boolean;
}

interface TokenizerOptions {
  /** End tokens in addition to the tokenizer's `eos_token`: `eosTokenIds` of the model's config. */
  eosTokenIds?: readonly number[] | undefined;
  /** Additional variables that the template receives for every conversation, e.g. Qwen3's enable_thinking. */
  chatTemplateKwargs?: Json;
}

type Json = Record<string, unknown>;

/** Roles whose text is written by the task's author and can contain control tokens. All other text is untrusted. */
const TRUSTED_ROLES = ['system', 'assistant'];
/** Role names that templates know. Any other role name is also untrusted text. */
const KNOWN_ROLES = ['system', 'assistant', 'user', 'tool', 'function', 'ipython'];

/**
 * Maximum number of characters in cached encodings. The cache saves time that the device would otherwise wait: a large
 * part of a millisecond per encoding.
 */
const KEPT_CHARACTERS = 4e6;

/**
 * Maximum number of characters in all untrusted messages of a conversation: more than 131,072 tokens of English. A
 * longer text could block the tokenizer for minutes.
 */
const MAX_CHARACTERS = 2 ** 19;

const QUESTION = { role: 'user', content: 'A question.' };

/**
 * Tokenizer and chat template of a model, from tokenizer.json and tokenizer_config.json. Names of control tokens in the
 * text of users and tools are encoded as ordinary text.
 */
export class ChatTokenizer {
  /**
   * Ids that end an assistant turn, at most 4. The first is the one that is written at the end of a turn: the chat
   * template's if it is one of these ids, otherwise `eos_token`.
   */
  readonly eosTokenIds: number[];
  /** Id of the pad token, or the first end token if tokenizer_config.json has no pad token. */
  readonly padTokenId: number;
  /** V of the tokenizer: one more than the largest token id. A model's embedding can have more rows. */
  readonly vocabSize: number;
  private readonly full: Tokenizer;
  /** The same tokenizer without its added tokens, so that no text it encodes can become a control token. */
  private readonly plain: Tokenizer;
  /** The tokenizers of a text that continues a conversation. They differ if `prepend_scheme` of a Metaspace step is "first". */
  private readonly later: { full: Tokenizer; plain: Tokenizer };
  private readonly templates: ChatTemplates;
  private readonly config: Json;
  private readonly control: ControlTokens;
  /** True if the tokenizer has a normalizer, which could turn other text into a control token's name. */
  private readonly normalizes: boolean;
  private readonly templateKwargs: Json;
  private readonly kept = new Map<string, Uint32Array>();
  private keptCharacters = 0;
  private readonly written = new WrittenRoles();
  private readsToolsOnce: boolean | undefined;
  private startIds: number[] | undefined;

  constructor(
    tokenizerJson: unknown,
    configJson: unknown,
    { eosTokenIds = [], chatTemplateKwargs = {} }: TokenizerOptions = {},
  ) {
    this.templateKwargs = chatTemplateKwargs;
    const given = asObject(tokenizerJson, 'tokenizer.json');
    this.config = withReadableConfig(asObject(configJson, 'tokenizer_config.json'));
    checkTokenizer(given);
    const added = withReadableTags((given['added_tokens'] ?? []) as AddedToken[]);
    const json: Json = { ...given, added_tokens: added, pre_tokenizer: preTokenizerOf(given['pre_tokenizer']) };
    try {
      this.control = new ControlTokens(added);
      const named = added.filter(({ id }) => this.control.isControl(id));
      // The library's constructor and its encode function keep references to their input, so each receives its own
      // copy.
      const both = (of: Json) => ({
        full: new Tokenizer(structuredClone(of), this.config),
        plain: new Tokenizer(withoutAddedTokens(of, named), this.config),
      });
      ({ full: this.full, plain: this.plain } = both(json));
      const later = { ...json, pre_tokenizer: afterStart(json['pre_tokenizer']) };
      const differs = JSON.stringify(later.pre_tokenizer) !== JSON.stringify(json['pre_tokenizer']);
      this.later = differs ? both(later) : { full: this.full, plain: this.plain };
    } catch (error) {
      const reason = describe(error).slice(0, 200).replaceAll('undefined', 'none');
      throw new InputError(
        `tokenizer.json cannot be read as a tokenizer (${reason}). It must be a file of the Hugging Face tokenizers library.`,
      );
    }
    checkKeepsText(this.full);
    this.normalizes = Boolean(json['normalizer']);
    this.templates = new ChatTemplates(this.config['chat_template']);
    this.templates.check();
    // Uses reduce, because Math.max(...ids) would have too many arguments for a real vocabulary.
    this.vocabSize = 1 + [...this.full.get_vocab(true).values()].reduce((a, b) => Math.max(a, b), -1);
    const isNamed = Boolean(this.config['eos_token']) || eosTokenIds.length === 0;
    const own = isNamed ? [this.tokenId(tokenText(this.config, 'eos_token'), 'eos_token')] : [];
    this.eosTokenIds = endTokens([...own, ...eosTokenIds], (ids) => this.closingToken(ids));
    const pad = this.config['pad_token'] ? tokenText(this.config, 'pad_token') : null;
    this.padTokenId = pad === null ? this.eosTokenIds[0] : this.tokenId(pad, 'pad_token');
  }

  /**
   * Encodes a text in which names of control tokens stand for the control tokens. Adds no special tokens at the start
   * or end.
   * @param isStart false for a text that continues a conversation, such as a reply
   */
  encode(text: string, { isStart = true } = {}): number[] {
    return idsOf(isStart ? this.full : this.later.full, text);
  }

  /** Encodes an untrusted text: the result never contains a control token. `isStart` as for `encode`. */
  encodePlain(text: string, { isStart = true } = {}): number[] {
    return idsOf(isStart ? this.plain : this.later.plain, text);
  }

  /**
   * Returns the ids of a text that is not a chat with the ids that the tokenizer puts in front of one (its `post_processor`), such as the
   * beginning-of-sequence token of Llama 3. Ids that start with them are returned as they are.
   */
  withStart(ids: number[]): number[] {
    this.startIds ??= startIdsOf(this.full);
    return this.startIds.every((id, i) => ids[i] === id) ? ids : [...this.startIds, ...ids];
  }

  /** Decodes ids. An id without a token (a row that only pads a model's embedding) decodes to an empty text. */
  decode(ids: Iterable<number>, options: { skipSpecialTokens?: boolean } = {}): string {
    const known = Array.from(ids).filter((id) => this.full.id_to_token(id) !== undefined);
    if (known.length === 0) return '';
    return this.full.decode(known, {
      skip_special_tokens: options.skipSpecialTokens ?? false,
      clean_up_tokenization_spaces: false,
    });
  }

  /**
   * Returns the conversation as the model's template writes it. To train or generate, use `encodeChat` instead, which
   * keeps untrusted text from becoming control tokens.
   * @param withTools true to use the template for tools, if the model has one; default: true if there are tools
   */
  applyChatTemplate(
    messages: ChatMessage[],
    options: ChatOptions = {},
    withTools = Boolean(options.tools?.length),
  ): string {
    return this.templates.of(withTools).render({
      // transformers sets both to None by default.
      ...{ tools: null, documents: null },
      ...specialTokenTexts(this.config),
      ...this.templateKwargs,
      messages,
      ...(options.tools?.length ? { tools: options.tools } : {}),
      add_generation_prompt: options.addGenerationPrompt ?? true,
    });
  }

  /** Encodes a conversation, by default with the header of the next assistant turn. */
  encodeChat(messages: ChatMessage[], options: ChatOptions = {}): Uint32Array {
    return this.once(JSON.stringify(['chat', messages, options]), () => {
      const trusted = options.trusted === false ? [] : TRUSTED_ROLES;
      const { tools = [] } = options;
      const render = (safe: ChatMessage[], safeTools: unknown[]) =>
        this.applyChatTemplate(safe, { ...options, tools: safeTools });
      return Uint32Array.from(this.encodeRendered(messages, render, { trusted, tools }));
    });
  }

  /**
   * Returns the tokens that follow an assistant turn which ended with its end token: the rest of that turn's closing (a
   * newline, in ChatML), the tool messages, and the next assistant header. They are found by rendering a dummy
   * conversation, whose assistant message has `tool_calls` if `called` is given. Throws InputError if the template does
   * not write the end token, or drops a message.
   */
  encodeContinuation(toolMessages: ChatMessage[], called?: CalledTurn): Uint32Array {
    return this.once(JSON.stringify(['continuation', toolMessages, called]), () => {
      // Names and ids of calls are text that the model wrote, so they are as untrusted as the tool's output.
      const answers = toolMessages.map((message, i) => ({
        ...message,
        ...(called && { name: called.calls[i].name, tool_call_id: called.calls[i].id }),
      }));
      const render = (safe: ChatMessage[]) => (called ? this.afterCalls(safe, called) : this.afterReply(safe));
      this.written.expect(answers, render, called !== undefined);
      return Uint32Array.from(this.encodeRendered(answers, render, { isStart: false }));
    });
  }

  /** True if a text contains the name of a control token in upper or lower case. */
  namesControl(text: string): boolean {
    return this.control.occurIn(text);
  }

  /** Id of a token by its text; undefined if the token is unknown. */
  idOf(text: string): number | undefined {
    return this.full.token_to_id(text);
  }

  /**
   * Returns the cached tokens of a key, or encodes and caches them; the least recently used are dropped. Returns a
   * copy, which the caller can transfer. If a template writes the current date, the cached date stays.
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

  /**
   * True if the chat template writes the tools that it is given, and the model was trained with them in its prompt. The
   * template of the shipped checkpoints writes tools, but these models have never seen any in a prompt.
   */
  get readsTools(): boolean {
    return (this.readsToolsOnce ??= this.templates.textOf(true) !== PLAIN_TEMPLATE && this.writesTools());
  }

  private writesTools(): boolean {
    const name = markerOf(0);
    const parameters = { type: 'object', properties: {}, required: [] };
    const tools = [{ type: 'function', function: { name, description: name, parameters } }];
    try {
      return isWritten(this.applyChatTemplate([QUESTION], { tools }), name);
    } catch (error) {
      if (error instanceof InputError) return false;
      throw error;
    }
  }

  /**
   * Returns a warning if the chat template closes an assistant's turn with none of `eosTokenIds`, because samples then
   * possibly do not end there.
   */
  get endNote(): string | undefined {
    const closing = this.closingToken(this.eosTokenIds);
    if (closing === null || (closing !== undefined && this.eosTokenIds.includes(closing))) return undefined;
    const name = (id: number) => this.full.id_to_token(id) ?? String(id);
    return endNote(closing === undefined ? 'no control token' : name(closing), this.eosTokenIds.map(name));
  }

  /**
   * Returns the id of the token with which the template closes an assistant's message. Undefined if no end token
   * follows the message, null if the template cannot render it.
   */
  private closingToken(ends: readonly number[]): number | undefined | null {
    const reply = 'webgrpo-dummy-reply';
    const said = { role: 'assistant', content: reply };
    try {
      const text = this.applyChatTemplate([QUESTION, said], { addGenerationPrompt: false });
      const after = text.slice(text.lastIndexOf(reply) + reply.length);
      return this.encode(after).find((id) => ends.includes(id) || this.control.isControl(id));
    } catch (error) {
      if (error instanceof InputError) return null;
      throw error;
    }
  }

  private afterReply(toolMessages: ChatMessage[]): string {
    const reply = 'webgrpo-dummy-reply';
    const end = this.full.id_to_token(this.eosTokenIds[0])!;
    const withTools = toolMessages.some(({ role }) => role === 'tool');
    const text = this.applyChatTemplate(
      [QUESTION, { role: 'assistant', content: reply }, ...toolMessages],
      {},
      withTools,
    );
    const rest = text.includes(reply) ? text.slice(text.indexOf(reply) + reply.length) : '';
    // Templates like Llama 2's write a space before the end token, which the model did not sample.
    const closing = rest.startsWith(end) ? rest : rest.trimStart();
    if (closing.startsWith(end)) return closing.slice(end.length);
    throw new InputError(
      `The chat template does not close an assistant message with ${JSON.stringify(end)}, the ` +
        'end token, so turns cannot be appended to sampled tokens. Set eos_token to the token that ends a turn.',
    );
  }

  /**
   * Returns the rendered text that follows a sampled turn with tool calls. If the template writes the token that ended
   * the turn (`end`), returns the text after it, otherwise the text from `stopToken`, the end of the calls, on.
   */
  private afterCalls(toolMessages: ChatMessage[], { calls, end, stopToken }: CalledTurn): string {
    const value = unusedText('webgrpo-dummy-value', [toolMessages, calls]);
    const toolCalls = calls.map(({ id, name }) => ({
      id,
      type: 'function',
      function: { name, arguments: { value } },
    }));
    const caller = { role: 'assistant', content: '', tool_calls: toolCalls };
    const text = this.applyChatTemplate([QUESTION, caller, ...toolMessages], {}, true);
    const from = text.lastIndexOf(value);
    const stop = from < 0 ? -1 : text.indexOf(stopToken, from);
    const drawn = end === undefined ? stopToken : this.full.id_to_token(end)!;
    const drawnAt = from < 0 ? -1 : text.indexOf(drawn, from);
    if (end !== undefined && drawnAt >= 0 && (stop < 0 || drawnAt <= stop)) return text.slice(drawnAt + drawn.length);
    if (stop >= 0) return text.slice(stop);
    throw new InputError(
      `The chat template does not write ${stopToken} after an assistant's \`tool_calls\`, so tool outputs cannot be ` +
        "appended to sampled tokens. Use the model's own template, or set rollout.multiTurn.format to the format it writes.",
    );
  }

  /**
   * Encodes rendered messages such that no untrusted text becomes a control token, neither on its own nor joined with a
   * neighbouring text. Descriptions of tools are untrusted: a server can have written them. If no untrusted text contains
   * a part of a control token's name, the messages are rendered only once.
   */
  private encodeRendered(
    messages: ChatMessage[],
    render: (messages: ChatMessage[], tools: unknown[]) => string,
    {
      trusted = TRUSTED_ROLES,
      isStart = true,
      tools = [],
    }: { trusted?: readonly string[]; isStart?: boolean; tools?: unknown[] } = {},
  ): number[] {
    const foreign = messages.filter(({ role }) => !trusted.includes(role));
    const { texts, keys } = textsOf(foreign, tools);
    const length = texts.reduce((sum, text) => sum + text.length, 0);
    if (length > MAX_CHARACTERS) throw tooLong(length);
    const isHostile = [...texts, ...keys].some((text) => this.control.occurIn(text));
    if (!isHostile && !texts.some((text) => this.control.touch(text)))
      return this.encodeOpen(render(messages, tools), isStart);
    const all = textsOf(messages, tools);
    const hidden = new HiddenTexts([...all.texts, ...all.keys].join(''));
    const hide = (text: string) => this.control.hide(text, hidden);
    const hideKey = (key: string) => this.control.hideNames(key, hidden); // templates read other keys by their names
    const text = render(
      messages.map((m) => (foreign.includes(m) ? inMessage(m, hide, hideKey) : m)),
      inTexts(tools, hide, hideKey),
    );
    if (!isHostile) {
      const open = render(messages, tools);
      if (String(this.control.namesIn(open)) === String(this.control.namesIn(text)))
        return this.encodeOpen(open, isStart);
    }
    return this.encodeParts(text, isStart, (part) => hidden.show(part));
  }

  /**
   * Encodes text that contains control tokens. A normalizer can create control tokens from other text; if it does, only
   * names that are literally in the text become control tokens.
   */
  private encodeOpen(text: string, isStart: boolean): number[] {
    const ids = this.encode(text, { isStart });
    if (!this.normalizes) return ids;
    const control = ids.filter((id) => this.control.isControl(id));
    const named = this.control.namesIn(text).map((name) => this.full.token_to_id(name)!);
    return String(control) === String(named) ? ids : this.encodeParts(text, isStart);
  }

  /**
   * Encodes a text in parts: splits it at control tokens first and restores hidden texts afterwards, so that the hidden
   * texts stay ordinary text.
   */
  private encodeParts(text: string, isStart: boolean, show = (part: string) => part): number[] {
    return this.control
      .split(text)
      .flatMap((part, i) =>
        typeof part === 'string' ? this.encodePlain(show(part), { isStart: isStart && i === 0 }) : [part.id],
      );
  }

  private tokenId(text: string, key: string): number {
    const id = this.full.token_to_id(text);
    if (id === undefined) {
      throw new InputError(`tokenizer_config.json: "${key}" is ${shown(text)}, which tokenizer.json lacks.`);
    }
    return id;
  }
}

/** Returns the ids that a tokenizer puts in front of a text. Those that it puts after the text would end it. */
function startIdsOf(tokenizer: Tokenizer): number[] {
  const [all, [first]] = [tokenizer.encode('a').ids, idsOf(tokenizer, 'a')];
  return all.slice(0, Math.max(0, all.indexOf(first)));
}

/** Encodes a text without adding special tokens. Throws InputError if the text is too long for the tokenizer. */
function idsOf(tokenizer: Tokenizer, text: string): number[] {
  if (text === '') return [];
  if (text.length > 2 * MAX_CHARACTERS) throw tooLong(text.length);
  try {
    return tokenizer.encode(text, { add_special_tokens: false }).ids;
  } catch (error) {
    // A text that is too long overflows the stack: the library passes the pieces of a word as arguments, and a pattern
    // stores every backtracking position.
    throw error instanceof RangeError ? tooLong(text.length) : error;
  }
}

/** A conversation with a text that the tokenizer cannot encode because of its length. */
export class TextTooLongError extends InputError {
  override name = 'TextTooLongError';
}

function tooLong(length: number): TextTooLongError {
  return new TextTooLongError(
    `A conversation has texts of ${length} characters, which are too many for this tokenizer. At most ${MAX_CHARACTERS} are ` +
      'encoded, and without white space fewer. Leave the problem out, or lower rollout.multiTurn.maxToolResponseLength.',
  );
}

/** Returns a text that `beside` does not contain: the given text, extended if needed. */
function unusedText(text: string, beside: unknown): string {
  const all = JSON.stringify(beside);
  return all.includes(text) ? unusedText(`${text}-`, beside) : text;
}

/** Returns every text and key of messages and tools that a template can write: contents, roles if unknown, and similar fields. */
function textsOf(messages: ChatMessage[], tools: unknown[]): { texts: string[]; keys: string[] } {
  const [texts, keys]: string[][] = [[], []];
  const into = (list: string[]) => (text: string) => {
    list.push(text);
    return text;
  };
  for (const message of messages) inMessage(message, into(texts), into(keys));
  inTexts(tools, into(texts), into(keys));
  return { texts, keys };
}

function inMessage(
  message: ChatMessage,
  change: (text: string) => string,
  changeKey: (key: string) => string,
): ChatMessage {
  const { role, ...rest } = message;
  return { role: KNOWN_ROLES.includes(role) ? role : change(role), ...inTexts(rest, change, changeKey) };
}

/**
 * Returns `bos_token` and similar tokens, which templates use. In tokenizer_config.json each is a string or an object
 * with `content`.
 */
function specialTokenTexts(config: Json): Record<string, string> {
  const keys = ['bos_token', 'eos_token', 'pad_token', 'unk_token'].filter((key) => config[key]);
  return Object.fromEntries(keys.map((key) => [key, tokenText(config, key)]));
}

function tokenText(config: Json, key: string): string {
  const value = config[key];
  const text = typeof value === 'object' && value !== null ? (value as Json)['content'] : value;
  if (typeof text === 'string') return text;
  throw new InputError(
    `tokenizer_config.json: "${key}" must name a token, but is ${shown(value)}. Name one of the model's.`,
  );
}

/** Converts a value to JSON, truncated to fit into an error message. */
const shown = (value: unknown): string => (JSON.stringify(value) ?? 'absent').slice(0, 80);

function asObject(value: unknown, file: string): Json {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Json;
  throw new InputError(`${file} must hold a JSON object, but holds ${shown(value)}.`);
}
