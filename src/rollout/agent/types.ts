/** Input of an agent loop: the problem, the model, the tools, and the limits of a sample. */

import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import type { Environment } from '../../tasks/environments/environment.ts';
import type { Message, Problem } from '../../tasks/task.ts';
import type { Tool } from '../../tasks/tool.ts';
import type { ToolCall, ToolParser } from '../tools/parser.ts';
import type { ToolLimits } from '../tools/run.ts';
import type { TurnEngine, SamplingParams, StopReason } from '../types.ts';
import type { SampleEvent } from './events.ts';
import type { SampleRecord } from './record.ts';

/** Limits of one sample. */
export interface AgentLimits extends ToolLimits {
  /** Maximum number of tokens of the prompt. A longer prompt is refused, or truncated as `truncation` sets. */
  maxPromptLength: number;
  /** Part that is removed from a prompt that is too long. Default: 'error', which refuses such a prompt. */
  truncation?: 'error' | 'left' | 'right' | 'middle';
  /** Maximum number of tokens after the prompt, tool outputs included. */
  maxResponseLength: number;
  /** Maximum number of tokens of the full sample: the size of a slot of the KV cache. */
  contextLength: number;
  /** Maximum number of turns of the model. */
  maxAssistantTurns: number;
  /** Maximum number of tool calls in the sample. */
  maxToolCalls: number;
  /** Time limit of the sample in milliseconds. Default: no limit. */
  sampleTimeoutMs?: number;
  /** Maximum milliseconds that a custom loop can be idle, i.e. in neither generate nor callTools. Default: no limit. */
  loopTimeoutMs?: number;
  /** 'stop' ends the sample with parse_error if a tool call cannot be read. 'tell' reports the error to the model. Default: 'tell'. */
  onParseError?: 'tell' | 'stop';
  /** Like onParseError, but for a tool that throws (tool_failure) or takes too long (timeout). */
  onToolFailure?: 'tell' | 'stop';
}

/** Input of an agent loop. */
export interface AgentLoopInput {
  /** Engine that generates the sample's turns. */
  engine: TurnEngine;
  /** Tokenizer of the model that generates the sample. */
  tokenizer: ChatTokenizer;
  /** Tools of the sample. If the list is empty, the default loop ends after one turn. */
  tools: Tool[];
  /** Environment of the problem; its tools are among `tools`. */
  environment?: Environment;
  /** Problem that the sample answers. */
  problem: Problem;
  /** Id that is unique per sample, by which the engine finds the sample's cache. */
  requestId: string;
  /** Random key of the sample; see GenerateRequest. */
  key: readonly [number, number];
  /** Sampling settings. `maxNewTokens` limits one turn; `limits` apply to the complete sample. */
  sampling: SamplingParams;
  /** Limits of the sample. */
  limits: AgentLimits;
  /** Parser of tool calls. Default: that of the Hermes format. */
  toolParser?: ToolParser;
  /**
   * True to put the tools' schemas into the prompt through the chat template. Default: false, so that the prompt stays
   * short.
   */
  toolSchemasInPrompt?: boolean;
  /** True to constrain tool calls to the tools' schemas. The parser must then have a `callFormat`. */
  constrainToolCalls?: boolean;
  /** Records for a checkpoint what the sample receives. In a resumed run, repeats what the sample received before the checkpoint. */
  record?: SampleRecord;
  /** Signal that ends the sample with stop reason 'aborted'; its tokens are kept. */
  signal?: AbortSignal;
  /** Name of a registered agent loop. Default: 'tool_agent'. */
  agentLoop?: string;
  /** Consequence if a custom loop or a tool parser fails: 'stop' throws, 'skip' sets the sample's `fault`. Default: 'stop'. */
  onError?: 'stop' | 'skip';
  /** Called at the end of each span of the sample's time. */
  onEvent?: (event: SampleEvent) => void;
  /** Called with tokens as they are sampled, and with the number of their turn (0, 1, ...), for display; see GenerateRequest. */
  onTokens?: (tokenIds: readonly number[], turn: number) => void;
  /** Called with each complete message after the prompt: turns of the model, in parts if they are continued, and outputs of tools. */
  onMessage?: (message: Message) => void;
}

/** One turn of the model. */
export interface Turn {
  /** Text of the turn without its end token. */
  content: string;
  /**
   * 'length' = the turn reached the `maxNewTokens` passed to `generate`. The loop can continue, with `say` or another
   * `generate`.
   */
  finishReason: 'stop' | 'length';
  /** Tool calls in the turn; empty without tools. */
  calls: ToolCall[];
  /** Stop reason, set if the sample must end after this turn: it has reached a limit or its time limit, or was aborted. */
  stop?: StopReason;
}
