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
  /** Tokens of the prompt. A longer prompt is refused, or truncated as `truncation` sets. */
  maxPromptLength: number;
  /** Part of a longer prompt that is removed. Default: 'error', which refuses it. */
  truncation?: 'error' | 'left' | 'right' | 'middle';
  /** Tokens after the prompt, including tool output. */
  maxResponseLength: number;
  /** Tokens in all: the size of a slot of the KV cache. */
  contextLength: number;
  /** Number of the model's turns. */
  maxAssistantTurns: number;
  /** Tool calls in the sample. */
  maxToolCalls: number;
  /** Milliseconds for the sample. Default: no limit. */
  sampleTimeoutMs?: number;
  /** Milliseconds for which a custom loop can be idle, i.e. in neither generate nor callTools. Default: no limit. */
  loopTimeoutMs?: number;
  /**
   * 'stop' ends a sample with parse_error if a call cannot be read. 'tell' reports the error to the model. Default:
   * 'tell'.
   */
  onParseError?: 'tell' | 'stop';
  /** Like onParseError, for a tool that throws (tool_failure) or takes too long (timeout). */
  onToolFailure?: 'tell' | 'stop';
}

/** Input of an agent loop. */
export interface AgentLoopInput {
  /** Generates its turns. */
  engine: TurnEngine;
  /** Tokenizer of the model that generates. */
  tokenizer: ChatTokenizer;
  /** Tools of the sample; single-turn if empty. */
  tools: Tool[];
  /** Environment of the problem; its tools are among `tools`. */
  environment?: Environment;
  /** Problem that the sample answers. */
  problem: Problem;
  /** Unique per sample; identifies its cache on the engine. */
  requestId: string;
  /** Random key of the sample; see GenerateRequest. */
  key: [number, number];
  /** Sampling settings; `maxNewTokens` limits a turn, and the limits below apply to the sample. */
  sampling: SamplingParams;
  /** Limits of the sample. */
  limits: AgentLimits;
  /** Parser of tool calls. Default: Hermes. */
  toolParser?: ToolParser;
  /**
   * True to put the tools' schemas into the prompt through the chat template. Default: false, so that the prompt stays
   * short.
   */
  toolSchemasInPrompt?: boolean;
  /** True to constrain tool calls to the tools' schemas. The parser must name its format. */
  constrainToolCalls?: boolean;
  /** Records what the sample receives, for a checkpoint, and repeats what it received before one. */
  record?: SampleRecord;
  /** Ends the sample with stop reason 'aborted'; its tokens are kept. */
  signal?: AbortSignal;
  /** Name of a registered agent loop. Default: 'tool_agent'. */
  agentLoop?: string;
  /** If a custom loop or tool parser fails: 'stop' throws; 'skip' sets the sample's `fault`. Default: 'stop'. */
  onError?: 'stop' | 'skip';
  /** Called at the end of each span of the sample's time. */
  onEvent?: (event: SampleEvent) => void;
  /** Called with the tokens of a turn (0, 1, ...) as they are sampled, for display; see GenerateRequest. */
  onTokens?: (tokenIds: readonly number[], turn: number) => void;
  /** Called with each complete message after the prompt: turns of the model and outputs of tools. */
  onMessage?: (message: Message) => void;
}

/** One turn of the model. */
export interface Turn {
  /** Text of the turn, without its end token. */
  content: string;
  /**
   * 'length' = the turn reached the `maxNewTokens` passed to `generate`. The loop can continue, with `say` or another
   * `generate`.
   */
  finishReason: 'stop' | 'length';
  /** Tool calls in the turn; empty without tools. */
  calls: ToolCall[];
  /** Set if the sample must end here: a limit of the run was reached, it was aborted, or it is out of time. */
  stop?: StopReason;
}
