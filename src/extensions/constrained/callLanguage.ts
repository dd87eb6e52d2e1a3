/** Languages that follow a turn's text byte by byte, outside and inside tool calls. */

import { ByteAutomaton, DEAD, oneOf } from './byteAutomaton.ts';
import { advance, prefixFunction } from '../../rollout/decode/stopStrings.ts';
import type { CallableTool, CallFormat, TurnConstraint } from '../../rollout/types.ts';
import { value } from './jsonGrammar.ts';
import { CALL_OPENS, callsGrammar, toolCallGrammar } from './toolGrammar.ts';

export interface CallLanguage {
  /** True if a turn must end once it is complete, because no text can follow. */
  readonly isWhole?: boolean;
  /** Returns the state after a byte; DEAD if no valid call continues with it. Every turn starts in state 0. */
  step(state: number, byte: number): number;
  /** True if the state is inside an incomplete tool call. */
  isCall(state: number): boolean;
  /** Minimum number of bytes from a state to the end of its call; 0 outside a call. */
  bytesLeft(state: number): number;
}

/** Returns the language of turns that a constraint allows. */
export function turnLanguage(constraint: TurnConstraint): CallLanguage {
  const { toolCalls: tools = [], toolCallFormat: format = 'hermes', requiredCalls, jsonSchema } = constraint;
  const calls = tools.length > 0 ? [callsGrammar(tools, format, requiredCalls === 'one')] : [];
  if (requiredCalls) return new WholeTurn(new ByteAutomaton(calls[0]), true);
  if (jsonSchema) return new WholeTurn(new ByteAutomaton(oneOf(...calls, value(jsonSchema))), true);
  return callLanguage(tools, format);
}

/** Returns the language of turns in which all calls of these tools are valid. */
function callLanguage(tools: readonly CallableTool[], format: CallFormat): CallLanguage {
  const automaton = new ByteAutomaton(toolCallGrammar(tools, format));
  return format === 'llama3_json' ? new WholeTurn(automaton) : new TaggedCalls(automaton);
}

/**
 * Language of turns in which calls start at a tag anywhere in the text. A state below the tag's length is the number of matched bytes of
 * the tag. Higher states are inside a call.
 */
class TaggedCalls implements CallLanguage {
  readonly #tag = new TextEncoder().encode(CALL_OPENS);
  readonly #fallback = prefixFunction(this.#tag);
  readonly #call: ByteAutomaton;

  constructor(call: ByteAutomaton) {
    this.#call = call;
  }

  step(state: number, byte: number): number {
    const opens = this.#tag.length;
    if (state < opens) {
      const matched = advance(this.#tag, this.#fallback, state, byte);
      return matched === opens ? opens + this.#call.start : matched;
    }
    const next = this.#call.next(state - opens, byte);
    if (next === DEAD) return DEAD;
    return this.#call.isEnd(next) ? 0 : opens + next;
  }

  isCall(state: number): boolean {
    return state >= this.#tag.length;
  }

  bytesLeft(state: number): number {
    return this.isCall(state) ? this.#call.bytesLeft(state - this.#tag.length) : 0;
  }
}

/** Language of turns that must match one grammar from start to end. The turn can end at any place where no call is open. */
class WholeTurn implements CallLanguage {
  readonly isWhole: boolean;
  readonly #turn: ByteAutomaton;

  constructor(turn: ByteAutomaton, isWhole = false) {
    this.#turn = turn;
    this.isWhole = isWhole;
  }

  step(state: number, byte: number): number {
    return this.#turn.next(state, byte);
  }

  isCall(state: number): boolean {
    return !this.#turn.isEnd(state);
  }

  bytesLeft(state: number): number {
    return this.#turn.bytesLeft(state);
  }
}
