/**
 * Text <-> token ids and the chat template, over the Hugging Face tokenizer and template libraries. No file access:
 * the caller hands in the parsed `tokenizer.json` and `tokenizer_config.json`.
 *
 * Two rules hold everywhere. Tokens in, tokens out: what the model sampled is never decoded and encoded again.
 * And what a user or a tool wrote is data: "<|im_end|>" in it is encoded as ordinary characters, never as the control
 * token of that name (Hugging Face's own apply_chat_template does not promise this).
 */

import { Template } from '@huggingface/jinja';
import { Tokenizer } from '@huggingface/tokenizers';
import { InputError } from '../../errors.ts';

/** As in `src/tasks/task.ts`, which is a layer above. */
interface ChatMessage {
  role: string;
  content: string;
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

interface AddedToken {
  id: number;
  content: string;
}

type Json = Record<string, unknown>;

/** Roles whose text comes from outside; system and assistant texts are the author's own and may hold control tokens. */
const UNTRUSTED_ROLES = ['user', 'tool', 'function', 'ipython'];

/** Characters of texts encoded lately that are kept: each takes a good part of a millisecond, and mostly the device waits. */
const KEPT_CHARACTERS = 4e6;

export class ChatTokenizer {
  /** Ids that end an assistant turn; the first is the one we append to demonstrations. */
  readonly eosTokenIds: number[];
  readonly padTokenId: number;
  /** V of the tokenizer: one more than the largest id. A model's embedding may have more rows. */
  readonly vocabSize: number;
  private readonly full: Tokenizer;
  /** The same tokenizer without added tokens: nothing it encodes can become a control token. */
  private readonly plain: Tokenizer;
  private readonly template: Template | null;
  private readonly config: Json;
  private readonly templateKwargs: Json;
  private readonly controlTokens: Map<string, number>;
  private readonly controlPattern: RegExp | null;
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
    const added = (json['added_tokens'] ?? []) as AddedToken[];
    // The library's constructor and its encode keep references, so each gets a copy of its own.
    this.full = new Tokenizer(structuredClone(json), this.config);
    this.plain = new Tokenizer(withoutAddedTokens(json, added), this.config);
    this.template = readTemplate(this.config);
    this.controlTokens = new Map(added.map(({ content, id }) => [content, id]));
    this.controlPattern = anyOf([...this.controlTokens.keys()]);
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
      const { messages: safe, mark } = this.defuse(messages);
      return Uint32Array.from(this.encodeMarked(this.applyChatTemplate(safe, options), mark));
    });
  }

  /**
   * The tokens that follow an assistant turn which ended with its end token: the rest of that turn's closing (a
   * newline, in ChatML), the tool messages, the next assistant header. Found as the difference to a dummy conversation.
   */
  encodeContinuation(toolMessages: ChatMessage[]): Uint32Array {
    return this.once(JSON.stringify(['continuation', toolMessages]), () => this.newContinuation(toolMessages));
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

  private newContinuation(toolMessages: ChatMessage[]): Uint32Array {
    const { messages: safe, mark } = this.defuse(toolMessages);
    const reply = 'webgrpo-dummy-reply';
    const dummy = [
      { role: 'user', content: 'A question.' },
      { role: 'assistant', content: reply },
    ];
    const text = this.applyChatTemplate([...dummy, ...safe]);
    const end = reply + this.full.id_to_token(this.eosTokenIds[0]);
    const at = text.indexOf(end);
    if (at < 0) {
      throw new InputError(
        `The chat template does not close an assistant message with ${JSON.stringify(end.slice(reply.length))}, the ` +
          'end token, so turns cannot be appended to sampled tokens; set eos_token to the token that ends a turn.',
      );
    }
    return Uint32Array.from(this.encodeMarked(text.slice(at + end.length), mark));
  }

  /** Breaks every control token's name in untrusted texts by a mark that occurs nowhere in them. */
  private defuse(messages: ChatMessage[]): { messages: ChatMessage[]; mark: string | null } {
    const pattern = this.controlPattern;
    const hostile = (m: ChatMessage) => UNTRUSTED_ROLES.includes(m.role) && pattern !== null && pattern.test(m.content);
    if (pattern === null || !messages.some(hostile)) return { messages, mark: null };
    const mark = unusedCharacter(messages.map((m) => m.content).join(''));
    const broken = messages.map((m) => (hostile(m) ? { ...m, content: breakUp(m.content, pattern, mark) } : m));
    return { messages: broken, mark };
  }

  /** Splits at control tokens first and takes the marks out afterwards, so that broken names stay ordinary text. */
  private encodeMarked(text: string, mark: string | null): number[] {
    if (mark === null || this.controlPattern === null) return this.encode(text);
    const parts = text.split(new RegExp(`(${this.controlPattern.source})`, 'u'));
    return parts.flatMap((part) => {
      const control = this.controlTokens.get(part);
      return control === undefined ? this.encodePlain(part.replaceAll(mark, '')) : [control];
    });
  }

  private tokenId(text: string, key: string): number {
    const id = this.full.token_to_id(text);
    if (id === undefined) {
      throw new InputError(`tokenizer_config.json: "${key}" is ${JSON.stringify(text)}, which tokenizer.json lacks.`);
    }
    return id;
  }
}

function withoutAddedTokens(json: Json, added: AddedToken[]): Json {
  const plain = structuredClone(json);
  const model = plain['model'] as Json;
  plain['added_tokens'] = [];
  plain['post_processor'] = null;
  // A name in the vocabulary could still be reached whole (ignore_merges).
  if (model['vocab'] && !Array.isArray(model['vocab'])) {
    for (const { content } of added) delete (model['vocab'] as Json)[content];
  }
  return plain;
}

/** Longest name first, as the tokenizer itself prefers. */
function anyOf(names: string[]): RegExp | null {
  const sorted = names.filter((name) => name !== '').sort((a, b) => b.length - a.length);
  if (sorted.length === 0) return null;
  return new RegExp(sorted.map((name) => name.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')).join('|'), 'u');
}

/** Again and again, because breaking one name may leave an overlapping one whole. */
function breakUp(text: string, pattern: RegExp, mark: string): string {
  const everywhere = new RegExp(pattern.source, 'gu');
  while (pattern.test(text)) text = text.replace(everywhere, (name) => [...name].join(mark));
  return text;
}

/** A private-use character that the text does not hold; template functions such as trim leave it alone. */
function unusedCharacter(text: string): string {
  for (let code = 0xe000; code < 0xf900; code++) {
    const character = String.fromCharCode(code);
    if (!text.includes(character)) return character;
  }
  throw new InputError('A message uses all 6400 private-use characters, so none is left to mark control tokens with.');
}

function readTemplate(config: Json): Template | null {
  const source = config['chat_template'];
  // Some models ship several templates by name.
  const named = Array.isArray(source) ? (source as { name: string; template: string }[]) : null;
  const text = named ? named.find(({ name }) => name === 'default')?.template : source;
  return typeof text === 'string' ? new Template(text) : null;
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
