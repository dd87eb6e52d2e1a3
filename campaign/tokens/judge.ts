/** Runs in a separate thread: encodes conversations of hostile texts, and compares their control tokens with those of harmless texts. */

import { InputError } from '../../src/errors.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import type { Verdict } from '../isolated.ts';

interface TokensInput {
  name: string;
  json: Record<string, unknown>;
  config: Record<string, unknown>;
  /** Text of the user, then of each tool. */
  texts: string[];
}

const made = new Map<string, ChatTokenizer>();

function judge({ name, json, config, texts }: TokensInput): Verdict {
  const tokenizer = made.get(name) ?? new ChatTokenizer(json, config);
  made.set(name, tokenizer);
  const added = json['added_tokens'] as { id: number }[];
  const unknown = unknownOf(json);
  const control = new Set(added.map(({ id }) => id).filter((id) => id !== unknown));
  const controlOf = (ids: Uint32Array) => [...ids].filter((id) => control.has(id)).join();
  const conversations = (said: string[]): [string, Uint32Array][] => {
    const [first, ...others] = said;
    const tools = others.map((content) => ({ role: 'tool', content }));
    return [
      ['a prompt', tokenizer.encodeChat([{ role: 'user', content: first }])],
      [
        'another role',
        tokenizer.encodeChat([
          { role: 'user', content: first },
          { role: 'tool', content: said[1] },
        ]),
      ],
      ['tool outputs', tokenizer.encodeContinuation(tools)],
      ['an odd role', tokenizer.encodeChat([{ role: 'image', content: first, name: said[1] }])],
    ];
  };
  const harmless = conversations(texts.map(() => 'zq'));
  for (const [i, [what, ids]] of conversations(texts).entries()) {
    const [found, allowed] = [controlOf(ids), controlOf(harmless[i][1])];
    if (found !== allowed) return { wrong: `${what}: control tokens ${found.slice(0, 60)} and not ${allowed}` };
  }
  const plain = tokenizer.encodePlain(texts[0]).filter((id) => control.has(id));
  return plain.length > 0 ? { wrong: `encodePlain gives ${plain.slice(0, 5).join()}` } : { held: 'held' };
}

/** A character that is not in the vocabulary becomes the unknown token, whichever role wrote it. */
function unknownOf({ model }: Record<string, unknown>): number | undefined {
  const { unk_token, vocab, unk_id } = model as Record<string, unknown>;
  return Array.isArray(vocab) ? (unk_id as number) : (vocab as Record<string, number>)[unk_token as string];
}

const port = globalThis.process.getBuiltinModule('node:worker_threads').parentPort!;
port.on('message', (input: TokensInput) => {
  try {
    port.postMessage(judge(input));
  } catch (error) {
    // A text that is too long is refused, so it produces no tokens.
    if (error instanceof InputError) return port.postMessage({ held: 'refused' });
    port.postMessage({ wrong: String((error as Error).stack).slice(0, 300) });
  }
});
