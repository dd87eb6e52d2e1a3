/**
 * Bytes of each token, for stop strings and constrained decoding. They are read from tokenizer.json at the first
 * request that needs them. The result is plain data, so that it can be sent to a worker.
 */

import { InputError } from '../../errors.ts';
import { type AddedToken, withReadableTags } from './controlTokens.ts';

export interface Vocabulary {
  bytes: Uint8Array;
  /**
   * [V + 1] token t has bytes starts[t] .. starts[t + 1] - 1; special tokens (such as the end of turn) have no bytes.
   */
  starts: Uint32Array;
}

interface TokenizerJson {
  model: { vocab?: unknown };
  decoder?: { type: string; decoders?: { type: string }[] } | null;
  added_tokens?: AddedToken[];
}

/** Bytes of one token. */
export function tokenBytes({ bytes, starts }: Vocabulary, token: number): Uint8Array {
  return bytes.subarray(starts[token] ?? bytes.length, starts[token + 1] ?? bytes.length);
}

/** Returns the printable character that stands for each byte, as in GPT-2. */
export function byteAlphabet(): string[] {
  const printable = (b: number) => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCharCode(printable(b) ? b : next++));
}

/**
 * Reads the bytes of all tokens. Throws InputError for a tokenizer whose tokens are neither byte-level (GPT-2) nor with
 * byte fallback (SentencePiece).
 */
export function vocabularyOf(tokenizerJson: unknown): Vocabulary {
  const json = tokenizerJson as TokenizerJson;
  const bytesOf = readerOf(json);
  const tokens: Uint8Array[] = [];
  for (const [text, id] of entries(json.model.vocab)) tokens[id] = bytesOf(text);
  const encoder = new TextEncoder();
  for (const { id, content, special } of withReadableTags(json.added_tokens ?? []))
    tokens[id] = special ? new Uint8Array(0) : encoder.encode(content);
  return joined(tokens);
}

/**
 * The vocabulary of BPE and WordPiece maps texts to ids; that of Unigram is a list of [text, score] in the order of
 * ids.
 */
function entries(vocab: unknown): [string, number][] {
  if (Array.isArray(vocab)) return (vocab as [string, number][]).map(([text], id) => [text, id]);
  return Object.entries((vocab ?? {}) as Record<string, number>);
}

function readerOf({ decoder }: TokenizerJson): (text: string) => Uint8Array {
  const steps = decoder ? [decoder.type, ...(decoder.decoders ?? []).map(({ type }) => type)] : [];
  if (steps.includes('ByteLevel')) return byteLevel();
  if (steps.includes('ByteFallback')) return sentencePiece;
  throw new InputError(
    `The tokenizer decodes by ${steps.join(', ') || 'nothing'}. Stop strings and constrained tool calls need one of ` +
      'ByteLevel (GPT-2, Llama 3, Qwen) or ByteFallback (Llama 2, Gemma).',
  );
}

/**
 * Decodes a byte-level token: each character stands for a byte. Other characters, which a few vocabularies contain,
 * stand for themselves.
 */
function byteLevel(): (text: string) => Uint8Array {
  const byteOf = new Map(byteAlphabet().map((character, byte) => [character, byte]));
  const encoder = new TextEncoder();
  return (text) => {
    const bytes = Array.from(text, (character) => byteOf.get(character));
    return bytes.includes(undefined) ? encoder.encode(text) : Uint8Array.from(bytes as number[]);
  };
}

/** Decodes a SentencePiece token: "<0x0A>" is a byte, U+2581 a space. */
function sentencePiece(text: string): Uint8Array {
  const byte = /^<0x([0-9A-F]{2})>$/.exec(text);
  return byte ? Uint8Array.of(parseInt(byte[1], 16)) : new TextEncoder().encode(text.replaceAll('\u2581', ' '));
}

function joined(tokens: (Uint8Array | undefined)[]): Vocabulary {
  const starts = new Uint32Array(tokens.length + 1);
  for (let t = 0; t < tokens.length; t++) starts[t + 1] = starts[t] + (tokens[t]?.length ?? 0);
  const bytes = new Uint8Array(starts[tokens.length]);
  for (let t = 0; t < tokens.length; t++) bytes.set(tokens[t] ?? [], starts[t]);
  return { bytes, starts };
}
