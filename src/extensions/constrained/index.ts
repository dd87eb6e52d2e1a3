/**
 * Grammars of tool calls and JSON, as masks of the next token. Turns with `rollout.multiTurn.constrainToolCalls`, and forced calls and JSON of
 * clients, use them: `src/engineParts.ts` provides them to the rollout server.
 */

export { guidesFor } from './guides.ts';
export { MAX_LEAST, MAX_RANGE } from './jsonGrammar.ts';
