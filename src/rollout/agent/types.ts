/** An agent loop's input: the problem, the model, the tools, and the limits of a sample. */

import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import type { Environment } from '../../tasks/environments/environment.ts';
import type { Message, Problem } from '../../tasks/task.ts';
import type { Tool } from '../../tasks/tool.ts';
import type { ToolCall, ToolParser } from '../tools/parser.ts';
import type { ToolLimits } from '../tools/run.ts';
import type { TurnEngine, SamplingParams, StopReason } from '../types.ts';
import type { SampleEvent } from './events.ts';
import type { SampleRecord } from './record.ts';

/** Bounds of one sample. */
export interface AgentLimits extends ToolLimits {
  /** Tokens; a longer prompt is refused, or cut where `truncation` says how. */
  maxPromptLength: number;
  /** What a longer prompt loses; absent = 'error', it is refused. */
  truncation?: 'error' | 'left' | 'right' | 'middle';
  /** Tokens after the prompt, tool output included. */
  maxResponseLength: number;
  /** Tokens in all: what a slot of the KV cache holds. */
  contextLength: number;
  /** Turns of the model. */
  maxAssistantTurns: number;
  /** Tool calls of the whole sample. */
  maxToolCalls: number;
  /** Milliseconds for the whole sample; absent = no limit. */
  sampleTimeoutMs?: number;
  /** Milliseconds that a loop of the user's own may do neither of generate and callTools; absent = no limit. */
  loopTimeoutMs?: number;
  /** 'stop' ends a sample whose call cannot be read, with parse_error; else ('tell', the default) the model is told. */
  onParseError?: 'tell' | 'stop';
  /** The same for a tool that throws (tool_failure) or takes too long (timeout). */
  onToolFailure?: 'tell' | 'stop';
}

/** What a sample is made from. */
export interface AgentLoopInput {
  /** Generates its turns. */
  engine: TurnEngine;
  /** Tokenizer of the model that generates. */
  tokenizer: ChatTokenizer;
  /** None: single-turn. */
  tools: Tool[];
  /** Where the problem runs; its tools are among `tools`. */
  environment?: Environment;
  /** What it is a try at. */
  problem: Problem;
  /** Unique per sample; names its cache on the engine. */
  requestId: string;
  /** Random key of the sample; see GenerateRequest. */
  key: [number, number];
  /** `maxNewTokens` bounds a turn; the limits below bound the sample. */
  sampling: SamplingParams;
  /** Where it ends. */
  limits: AgentLimits;
  /** Reads tool calls out of a turn; absent = Hermes. */
  toolParser?: ToolParser;
  /** Put the tools' schemas into the prompt through the chat template. Default false: the prompt stays short. */
  toolSchemasInPrompt?: boolean;
  /** Constrains tool calls to the tools' schemas; the parser must say its format. */
  constrainToolCalls?: boolean;
  /** Hears what the sample receives, for a checkpoint, and answers what it received before one. */
  record?: SampleRecord;
  /** Ends the sample with stop reason 'aborted', its tokens kept. */
  signal?: AbortSignal;
  /** A registered agent loop; default 'tool_agent'. */
  agentLoop?: string;
  /** A loop or tool parser of the user's own that fails: 'stop' (default) = it throws; 'skip' = the sample has a `fault`. */
  onError?: 'stop' | 'skip';
  /** Called at the end of each span of the sample's time. */
  onEvent?: (event: SampleEvent) => void;
  /** Called with the tokens of a turn (0, 1, ...) as they are drawn, for display; see GenerateRequest. */
  onTokens?: (tokenIds: readonly number[], turn: number) => void;
  /** Called with each message after the prompt, once it is whole: the model's turns, the outputs of tools. */
  onMessage?: (message: Message) => void;
}

/** One turn of the model. */
export interface Turn {
  /** The turn as text, without its end token. */
  content: string;
  /** 'length' = cut at the `maxNewTokens` that `generate` was given: the loop may continue, with `say` or another `generate`. */
  finishReason: 'stop' | 'length';
  /** Tool calls in it; none without tools. */
  calls: ToolCall[];
  /** Set when the sample has to end here: cut by a limit of the run, aborted, out of time. */
  stop?: StopReason;
}
