/** Finds out who wrote each token of a recorded try. */

import type { TokenGroup, TokenTry } from '../2-losses/updates.ts';

export const AUTHORS = ['prompt', 'model', 'tool', 'template'] as const;
export type Author = (typeof AUTHORS)[number];

export interface AuthoredToken {
  text: string;
  by: Author;
}

/**
 * Returns the author of each token after the prompt. Sampled tokens are the model's. Of the others, text inside a tool response is the
 * tool's, and everything else is the chat template's.
 */
export function authorsOf({ tokens, mask }: Pick<TokenTry, 'tokens' | 'mask'>): Author[] {
  let isInside = false;
  return tokens.map((text, t): Author => {
    if (mask[t] === 1) return 'model';
    if (text === '</tool_response>') isInside = false;
    const by = isInside ? 'tool' : 'template';
    if (text === '<tool_response>') isInside = true;
    return by;
  });
}

/** Returns the messages of the prompt, each as one piece, followed by the tokens of a try. */
export function authoredTokens({ prompt }: Pick<TokenGroup, 'prompt'>, one: TokenTry): AuthoredToken[] {
  const by = authorsOf(one);
  return [
    ...prompt.map(({ content }): AuthoredToken => ({ text: content, by: 'prompt' })),
    ...one.tokens.map((text, t) => ({ text, by: by[t] })),
  ];
}
