/**
 * Text files of a checkpoint, read as bytes, so that a saved model contains the files which training does not change
 * byte for byte.
 */

import { InputError } from '../../errors.ts';
import type { PackedFormat } from '../../gpu/packedFormat.ts';
import { type ModelConfig, modelConfigToJson, parseModelConfig, readEosTokenIds } from '../config.ts';

type Json = Record<string, unknown>;

/** Source of a checkpoint's files: a folder, the browser's file system (OPFS), or bytes in memory. */
export interface CheckpointFiles {
  /**
   * Number of bytes of the file; undefined if the file is missing. Must throw if the lookup fails for another reason.
   */
  size(path: string): Promise<number | undefined>;
  /** Returns bytes begin..end of an existing file. */
  read(path: string, begin: number, end: number): Promise<Uint8Array>;
  /** Names of the files in the folder, in no order. Undefined if the folder cannot be listed. */
  names?(): Promise<string[]>;
  /** Name of the GGUF file that holds the complete model. Undefined for a folder in Hugging Face format. */
  gguf?: string;
}

/** A tensor of a checkpoint whose values are read in parts. */
export interface StoredTensor {
  shape: number[];
  /** File that contains the tensor. */
  file: string;
  /** Reads elements first..first + count, which are complete rows, as float32. Throws InputError. */
  read(first: number, count: number): Promise<Float32Array>;
  /**
   * Reads the same elements in a packed format of the GPU, bit for bit; undefined if the file does not have them in
   * such a format.
   */
  packed?: { format: PackedFormat; read(first: number, count: number): Promise<Uint32Array> };
}

/** Content of a checkpoint's text files by name, unchanged. */
export type SourceFiles = ReadonlyMap<string, Uint8Array<ArrayBuffer>>;

/** Maximum bytes of a text file; larger than any config, template, tokenizer or index. */
export const MAX_TEXT_BYTES = 128 * 2 ** 20;

const [CONFIG, GENERATION] = ['config.json', 'generation_config.json'];
const [TOKENIZER, TOKENIZER_CONFIG] = ['tokenizer.json', 'tokenizer_config.json'];
const TEMPLATE = 'chat_template.jinja';
/**
 * Path of transformers' second chat template. A saved model has this template in tokenizer_config.json, because a
 * checkpoint has no folders.
 */
const TOOL_TEMPLATE = 'additional_chat_templates/tool_use.jinja';
/**
 * Files with the content of tokenizer.json and tokenizer_config.json in other formats; copied if those two are
 * unchanged.
 */
const TOKENIZER_COPIES = ['vocab.json', 'merges.txt', 'added_tokens.json'];
const OTHER_TOKENIZERS = /^vocab\.|\.(model|tiktoken)$/;
const SPECIAL_TOKENS = 'special_tokens_map.json';

/** Text files that a checkpoint can lack. */
export const OPTIONAL_FILES = [GENERATION, TEMPLATE, TOOL_TEMPLATE, SPECIAL_TOKENS, ...TOKENIZER_COPIES];
const NAMES = [CONFIG, TOKENIZER, TOKENIZER_CONFIG, ...OPTIONAL_FILES];

/** Matches names of files that can be copied into a saved model unread: licence, README, other tokenizers, code. */
const OTHERS = /^(licen[cs]e|notice|readme|use_policy)(\.|$)|\.(json|txt|md|model|tiktoken|jinja|py)$/i;
/** Matches files that describe the weights or an earlier run, and are therefore not copied into a saved model. */
const OUTDATED = /^\.|^(adapter_config|manifest|trainer_state|(all|eval|train)_results)\.json$|\.index\.json$/;
/** Maximum bytes of a file that webgrpo does not read and copies into each checkpoint. */
const MAX_OTHER_BYTES = 32 * 2 ** 20;

/** Parsed tokenizer of a folder. */
export interface TokenizerJson {
  /** Parsed `tokenizer.json`; undefined if the folder lacks it. */
  tokenizerJson?: Json;
  /** Parsed `tokenizer_config.json`. Its `chat_template` is read from `chat_template.jinja` if that file exists. */
  tokenizerConfigJson?: Json;
}

/** Reads every text file that exists. Throws InputError if one is too long, or an HTML page. */
export async function readSourceFiles(files: CheckpointFiles, names: readonly string[] = NAMES): Promise<SourceFiles> {
  const found = new Map<string, Uint8Array<ArrayBuffer>>();
  for (const name of names) {
    const bytes = await readSmall(files, name);
    if (bytes) found.set(name, bytes.slice());
  }
  return found;
}

/** True for a file of a model's folder that webgrpo does not read and that stays valid when the weights change. */
export const isOtherFile = (name: string, size: number): boolean =>
  OTHERS.test(name) && !OUTDATED.test(name) && !NAMES.includes(name) && !name.includes('/') && size <= MAX_OTHER_BYTES;

/** Reads the other files of a folder, selected by `isOtherFile`, if the folder can be listed. */
export async function readOtherFiles(files: CheckpointFiles): Promise<SourceFiles> {
  const found = new Map<string, Bytes>();
  for (const name of ((await files.names?.()) ?? []).filter((name) => isOtherFile(name, 0)).sort()) {
    // If a folder has a name that `isOtherFile` accepts, `size` rejects or is undefined.
    const size = await files.size(name).catch(() => undefined);
    if (size !== undefined && isOtherFile(name, size)) found.set(name, (await files.read(name, 0, size)).slice());
  }
  return found;
}

/** Parses the tokenizer of the files. Throws InputError. */
export function tokenizerIn(files: SourceFiles): TokenizerJson {
  const tokenizerJson = jsonIn(files, TOKENIZER);
  const tokenizerConfigJson = withTemplates(files, jsonIn(files, TOKENIZER_CONFIG));
  return { ...(tokenizerJson && { tokenizerJson }), ...(tokenizerConfigJson && { tokenizerConfigJson }) };
}

/** Reads the value of `chat_template` of a folder, which can be an adapter's. Undefined if it has none. Throws InputError. */
export async function readChatTemplate(files: CheckpointFiles): Promise<unknown> {
  const found = await readSourceFiles(files, [TOKENIZER_CONFIG, TEMPLATE, TOOL_TEMPLATE]);
  return tokenizerIn(found).tokenizerConfigJson?.['chat_template'] ?? undefined;
}

/** Returns the parsed config, including the end tokens of `generation_config.json`. Throws InputError. */
export function withGenerationConfig(config: ModelConfig, files: SourceFiles): ModelConfig {
  const more = readEosTokenIds(jsonIn(files, GENERATION) ?? {}, GENERATION, config.vocabSize);
  const eosTokenIds = [...new Set([...(config.eosTokenIds ?? []), ...more])];
  return eosTokenIds.length > 0 ? { ...config, eosTokenIds } : config;
}

/**
 * Returns the tokenizer's files and the other text files: unchanged copies of the source's, except for those that are
 * out of date.
 */
export function filesBeside({ tokenizerJson, tokenizerConfigJson, sourceFiles }: Saved): Map<string, Bytes> {
  const source = sourceFiles ?? new Map<string, Bytes>();
  const files = new Map([...source].filter(([name]) => name !== CONFIG && name !== TOOL_TEMPLATE));
  const drop = (...names: string[]) => names.forEach((name) => files.delete(name));
  const { tokenizerJson: json, tokenizerConfigJson: config } = tokenizerIn(files);
  if (!isSame(json, tokenizerJson)) {
    drop(TOKENIZER, ...TOKENIZER_COPIES, ...[...files.keys()].filter((name) => OTHER_TOKENIZERS.test(name)));
    if (tokenizerJson) files.set(TOKENIZER, encodeJson(tokenizerJson));
  }
  if (!isSame(config, tokenizerConfigJson)) {
    drop(TOKENIZER_CONFIG, TEMPLATE);
    if (!isSame({ ...config, chat_template: '' }, { ...tokenizerConfigJson, chat_template: '' })) drop(SPECIAL_TOKENS);
    if (tokenizerConfigJson) files.set(TOKENIZER_CONFIG, encodeJson(tokenizerConfigJson));
  }
  return files;
}

/**
 * Returns the source's `config.json`, byte for byte except for the dtype. If it has no end token, the tokenizer's ids are added, because
 * transformers' generate() would not end otherwise. A newly initialised model has all ids from the tokenizer.
 */
export function configFile(
  { config, sourceFiles = new Map<string, Bytes>(), ...tokenizer }: Saved & { config: ModelConfig },
  dtype: string,
): Bytes {
  const { auto_map, ...rest } = jsonIn(sourceFiles, CONFIG) ?? {};
  // Removes `auto_map`, which names Python files, if those files are not saved with the model.
  const hasCode = [...sourceFiles.keys()].some((name) => name.endsWith('.py'));
  const source: Json = hasCode && auto_map !== undefined ? { ...rest, auto_map } : rest;
  if (config.eosTokenIds && isOfSource(config, sourceFiles)) {
    const named = ['torch_dtype', 'dtype'].filter((key) => key in source);
    const changed = named.length > 0 ? named : dtype === 'float32' ? [] : ['torch_dtype'];
    const wanted = { ...source, ...Object.fromEntries(changed.map((key) => [key, dtype])) };
    const text = textIn(sourceFiles, CONFIG)!.replace(/("(?:torch_)?dtype"\s*:\s*)"\w*"/g, `$1"${dtype}"`);
    return isSame(JSON.parse(text), wanted) ? new TextEncoder().encode(text) : encodeJson(wanted);
  }
  const [ids, own] = [specialTokenIds(tokenizer), modelConfigToJson(config)];
  const end = source['eos_token_id'] ?? own['eos_token_id'] ?? ids['eos_token_id'];
  return encodeJson({
    ...ids,
    ...source,
    ...own,
    ...(end !== undefined && { eos_token_id: end }),
    torch_dtype: dtype,
    ...('dtype' in source && { dtype }),
  });
}

/** True if the model's config was read from these files and has not changed since. */
function isOfSource(config: ModelConfig, files: SourceFiles): boolean {
  const json = jsonIn(files, CONFIG);
  return json !== undefined && isSame(withGenerationConfig(parseModelConfig(json), files), config);
}

type Bytes = Uint8Array<ArrayBuffer>;
type Saved = TokenizerJson & { sourceFiles?: SourceFiles };

function specialTokenIds({ tokenizerJson, tokenizerConfigJson }: TokenizerJson): Json {
  const { model, added_tokens: added } = (tokenizerJson ?? {}) as {
    model?: { vocab?: Record<string, number> };
    added_tokens?: { id: number; content: string }[];
  };
  const ids = ['bos_token', 'eos_token', 'pad_token'].map((key) => {
    const named = tokenizerConfigJson?.[key] as string | { content: string } | null | undefined;
    const text = typeof named === 'object' ? named?.content : named;
    const id = added?.find(({ content }) => content === text)?.id ?? model?.vocab?.[text ?? ''];
    return [`${key}_id`, id] as const;
  });
  return Object.fromEntries(ids.filter(([, id]) => typeof id === 'number'));
}

function withTemplates(files: SourceFiles, config: Json | undefined): Json | undefined {
  const template = textIn(files, TEMPLATE);
  const forTools = textIn(files, TOOL_TEMPLATE);
  if (!template) return config;
  if (!forTools) return { ...config, chat_template: template };
  const named = Object.entries({ default: template, tool_use: forTools });
  return { ...config, chat_template: named.map(([name, text]) => ({ name, template: text })) };
}

const isSame = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);

function textIn(files: SourceFiles, name: string): string | undefined {
  const bytes = files.get(name);
  return bytes && new TextDecoder().decode(bytes);
}

/**
 * Returns the JSON object in one of the files; undefined if the file is missing. Throws InputError for any other
 * content.
 */
export function jsonIn(files: SourceFiles, name: string): Json | undefined {
  const text = textIn(files, name);
  return text === undefined ? undefined : parseObject(text, name);
}

/** Reads a JSON object from a file; undefined if the file is missing. Throws InputError for any other content. */
export async function readStoredJson(files: CheckpointFiles, path: string): Promise<Json | undefined> {
  const bytes = await readSmall(files, path);
  return bytes && parseObject(new TextDecoder().decode(bytes), path);
}

function parseObject(text: string, path: string): Json {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (cause) {
    throw new InputError(`${path} is not JSON (${cause instanceof Error ? cause.message : String(cause)}).`, { cause });
  }
  if (typeof json === 'object' && json !== null && !Array.isArray(json)) return json as Json;
  throw new InputError(`${path} must hold a JSON object.`);
}

/** Reads a small file. Throws InputError for an HTML page, which some servers return for a missing file. */
async function readSmall(files: CheckpointFiles, path: string): Promise<Uint8Array | undefined> {
  const size = await files.size(path);
  if (size === undefined) return undefined;
  if (size > MAX_TEXT_BYTES) {
    throw new InputError(`${path} has ${size} bytes. At most ${MAX_TEXT_BYTES} are read. Is it the right file?`);
  }
  const bytes = await files.read(path, 0, size);
  if (!isHtml(bytes)) return bytes;
  throw new InputError(
    `${path} is an HTML page: the server has no such file and answered with its start page. Check the address. A program can read ` +
      `the checkpoint with fetchCheckpoint(), or let its file reader return undefined for such an answer.`,
  );
}

/** True if the bytes start like an HTML document. */
export const isHtml = (bytes: Uint8Array): boolean =>
  /^\s*<(!doctype|html)/i.test(new TextDecoder().decode(bytes.subarray(0, 100)));

function encodeJson(json: Json): Bytes {
  return new TextEncoder().encode(`${JSON.stringify(json, null, 2)}\n`);
}
