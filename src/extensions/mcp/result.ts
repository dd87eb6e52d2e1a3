/** Converts the result of an MCP tool call to the text that the model reads. */

import { isObject } from '../../tasks/toolSchema.ts';
import { isErrorText } from '../../tasks/toolOutput.ts';

type Json = Record<string, unknown>;

/**
 * Returns the texts of a result unchanged, with one line for each image, audio or file in it. A result without text returns
 * `structuredContent` as JSON. The text starts with "Error:" if the server reports that the tool failed.
 * @param most maximum number of characters to keep at each end of the text; the run truncates further, to maxResponseLength
 */
export function resultText(result: unknown, most: number): string {
  const { content, structuredContent, isError } = isObject(result) ? result : {};
  const blocks = Array.isArray(content) ? content.map(blockText) : [];
  const hasText = blocks.some((text) => text !== '');
  const text = hasText || structuredContent === undefined ? blocks.join('\n') : JSON.stringify(structuredContent);
  const kept = keepEnds(text, most);
  return isError === true && !isErrorText(kept) ? `Error: ${kept || 'the tool failed'}` : kept;
}

/** Returns a copy of the first and the last `most` characters, so that a long text can be freed. */
function keepEnds(text: string, most: number): string {
  if (text.length <= 2 * most) return text;
  return new TextDecoder().decode(new TextEncoder().encode(text.slice(0, most) + text.slice(-most)));
}

function blockText(block: unknown): string {
  if (!isObject(block)) return '[unknown content]';
  switch (block['type']) {
    case 'text':
      return textOr(block['text'], '');
    case 'image':
    case 'audio':
      return `[${block['type']}: ${mimeType(block)}, ${byteLength(block['data'])} bytes]`;
    case 'resource': {
      const resource = isObject(block['resource']) ? block['resource'] : {};
      const text = resource['text'];
      const what = `resource ${uriOf(resource)}: ${mimeType(resource)}`;
      return typeof text === 'string' ? `[${what}]\n${text}` : `[${what}, ${byteLength(resource['blob'])} bytes]`;
    }
    case 'resource_link':
      return `[link to ${textOr(block['name'], 'a resource').slice(0, 200)}: ${uriOf(block)}]`;
    default:
      return `[${textOr(block['type'], 'unknown').slice(0, 40)} content]`;
  }
}

const textOr = (value: unknown, other: string): string => (typeof value === 'string' ? value : other);
const mimeType = ({ mimeType: type }: Json): string => textOr(type, 'unknown type').slice(0, 100);
const uriOf = ({ uri }: Json): string => textOr(uri, 'without an address').slice(0, 500);

/** Returns the number of bytes that a base64 text encodes, without decoding it. */
const byteLength = (data: unknown): number =>
  typeof data === 'string'
    ? Math.floor((data.length * 3) / 4) - (data.endsWith('==') ? 2 : data.endsWith('=') ? 1 : 0)
    : 0;
