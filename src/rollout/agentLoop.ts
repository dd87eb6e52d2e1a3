/**
 * One sample from prompt to last token: generate, parse tool calls, run the tools, append their output, generate again.
 * After verl's tool_agent_loop. Every sample runs its own loop; a slow tool holds up nobody else.
 */

import { InputError } from '../model/errors.ts';
import type { ChatTokenizer } from '../model/tokenizer.ts';
import type { Message, Problem } from '../tasks/task.ts';
import type { Tool } from '../tasks/tool.ts';
import { runTool } from './runTool.ts';
import type { ToolLimits, ToolResult } from './runTool.ts';
import { parseHermes } from './toolParser.ts';
import type { ToolCall, ToolParser } from './toolParser.ts';
import { turnToStart } from './startLine.ts';
import type { Generation, RolloutEngine, SamplingParams, StopReason, Trajectory } from './types.ts';

export interface AgentLimits extends ToolLimits {
  /** Tokens; a longer prompt is refused. */
  maxPromptLength: number;
  /** Tokens after the prompt, tool output included. */
  maxResponseLength: number;
  /** Tokens in all: what a slot of the KV cache holds. */
  contextLength: number;
  maxAssistantTurns: number;
  /** Tool calls of the whole sample. */
  maxToolCalls: number;
}

export interface AgentLoopInput {
  engine: RolloutEngine;
  tokenizer: ChatTokenizer;
  /** None: single-turn. */
  tools: Tool[];
  problem: Problem;
  requestId: string;
  /** Random key of the sample; see GenerateRequest. */
  key: [number, number];
  /** `maxNewTokens` bounds a turn; the limits below bound the sample. */
  sampling: SamplingParams;
  limits: AgentLimits;
  toolParser?: ToolParser;
  /** Put the tools' schemas into the prompt through the chat template. Default false: the prompt stays short. */
  toolSchemasInPrompt?: boolean;
  /** Ends the sample with stop reason 'aborted', its tokens kept. */
  signal?: AbortSignal;
}

export interface AgentLoopOutput {
  trajectory: Trajectory;
  /** Assistant and tool messages after the prompt, decoded. */
  messages: Message[];
  /** Milliseconds this sample waited for the engine and for its tools. */
  timing: { generateMs: number; toolsMs: number };
}

/** What the states of the loop share. */
interface Sample {
  input: AgentLoopInput;
  prompt: Uint32Array;
  ids: number[];
  mask: number[];
  logProbs: number[];
  logMass: number[];
  messages: Message[];
  numTurns: number;
  numToolCalls: number;
  numToolErrors: number;
  timing: AgentLoopOutput['timing'];
}

/** Throws InputError on a prompt longer than the limits; whatever the tools do, it does not throw. */
export async function runAgentLoop(input: AgentLoopInput): Promise<AgentLoopOutput> {
  await turnToStart();
  const sample = startSample(input);
  const { engine, requestId, signal } = input;
  const abort = () => engine.abort([requestId]);
  signal?.addEventListener('abort', abort, { once: true });
  try {
    return finish(sample, await takeTurns(sample));
  } finally {
    signal?.removeEventListener('abort', abort);
    engine.release(requestId);
  }
}

async function takeTurns(sample: Sample): Promise<StopReason> {
  const { tools, tokenizer, limits, signal } = sample.input;
  for (;;) {
    const budget = tokensLeft(sample);
    if (signal?.aborted) return 'aborted';
    const generation = await generate(sample, budget);
    if (generation.stopReason === 'aborted') return 'aborted';
    if (generation.stopReason === 'length') return generation.tokenIds.length < budget ? 'max_tokens' : outOf(sample);
    const calls = tools.length > 0 ? parseCalls(sample) : [];
    if (calls.length === 0) return 'completed';
    if (sample.numTurns >= limits.maxAssistantTurns) return 'max_turns';
    if (sample.numToolCalls + calls.length > limits.maxToolCalls) return 'max_tool_calls';
    const toolMessages = await runTools(sample, calls);
    if (signal?.aborted) return 'aborted';
    const continuation = tokenizer.encodeContinuation(toolMessages);
    // As verl: output that leaves no room for an answer is not appended.
    if (continuation.length >= tokensLeft(sample)) return outOf(sample);
    append(sample, continuation);
  }
}

function startSample(input: AgentLoopInput): Sample {
  const prompt = encodePrompt(input);
  checkPrompt(prompt.length, input.problem.id, input.limits);
  return {
    input,
    prompt,
    ids: [],
    mask: [],
    logProbs: [],
    logMass: [],
    messages: [],
    numTurns: 0,
    numToolCalls: 0,
    numToolErrors: 0,
    timing: { generateMs: 0, toolsMs: 0 },
  };
}

/** Prompts by tokenizer and problem: the samples of a group start at once, and the page must stay responsive. */
const PROMPTS = new WeakMap<ChatTokenizer, WeakMap<Problem, Uint32Array>>();

function encodePrompt({ tokenizer, problem, tools, toolSchemasInPrompt }: AgentLoopInput): Uint32Array {
  if (toolSchemasInPrompt) return tokenizer.encodeChat(problem.messages, { tools: tools.map(openAiSchema) });
  let prompts = PROMPTS.get(tokenizer);
  if (!prompts) PROMPTS.set(tokenizer, (prompts = new WeakMap<Problem, Uint32Array>()));
  let prompt = prompts.get(problem);
  if (!prompt) prompts.set(problem, (prompt = tokenizer.encodeChat(problem.messages)));
  return prompt.slice();
}

function checkPrompt(length: number, problemId: string, limits: AgentLimits): void {
  const allowed = Math.min(limits.maxPromptLength, limits.contextLength - 1);
  if (length <= allowed) return;
  throw new InputError(
    `Problem "${problemId}" has a prompt of ${length} tokens, but at most ${allowed} fit ` +
      `(maxPromptLength ${limits.maxPromptLength}, context length ${limits.contextLength}); raise them or leave it out.`,
  );
}

/** Tokens the sample may still gain. */
function tokensLeft({ prompt, ids, input: { limits } }: Sample): number {
  return Math.min(limits.maxResponseLength, limits.contextLength - prompt.length) - ids.length;
}

/** Which of the two limits `tokensLeft` ran into. */
function outOf({ prompt, input: { limits } }: Sample): StopReason {
  return limits.maxResponseLength <= limits.contextLength - prompt.length ? 'max_tokens' : 'context_overflow';
}

async function generate(sample: Sample, budget: number): Promise<Generation> {
  const { engine, requestId, key, sampling, tokenizer } = sample.input;
  const contextIds = new Uint32Array(sample.prompt.length + sample.ids.length);
  contextIds.set(sample.prompt);
  contextIds.set(sample.ids, sample.prompt.length);
  const start = performance.now();
  const generation = await engine.generate({
    requestId,
    contextIds,
    promptLength: sample.prompt.length,
    key,
    sampling: { ...sampling, maxNewTokens: Math.min(sampling.maxNewTokens, budget) },
  });
  sample.timing.generateMs += performance.now() - start;
  append(sample, generation.tokenIds, generation);
  sample.numTurns++;
  const content = tokenizer.decode(generation.tokenIds, { skipSpecialTokens: true });
  sample.messages.push({ role: 'assistant', content });
  return generation;
}

function parseCalls({ input, messages }: Sample): ToolCall[] {
  return (input.toolParser ?? parseHermes)(messages[messages.length - 1].content, input.tools);
}

/** All calls of a turn at once; their outputs in the order of the calls. */
async function runTools(sample: Sample, calls: ToolCall[]): Promise<Message[]> {
  const { tools, requestId, limits, signal } = sample.input;
  const start = performance.now();
  const results: ToolResult[] = await Promise.all(calls.map((call) => runTool(call, tools, requestId, limits, signal)));
  sample.timing.toolsMs += performance.now() - start;
  sample.numToolCalls += calls.length;
  sample.numToolErrors += results.filter(({ failed }) => failed).length;
  const toolMessages = results.map(({ text }): Message => ({ role: 'tool', content: text }));
  sample.messages.push(...toolMessages);
  return toolMessages;
}

/** Sampled tokens carry their log-probs; without `generation` the tokens are a tool's and stay out of the loss. */
function append(sample: Sample, ids: Uint32Array, generation?: Generation): void {
  ids.forEach((id, i) => {
    sample.ids.push(id);
    sample.mask.push(generation ? 1 : 0);
    sample.logProbs.push(generation?.logProbs[i] ?? 0);
    sample.logMass.push(generation?.logMass?.[i] ?? 0);
  });
}

function finish(sample: Sample, stopReason: StopReason): AgentLoopOutput {
  const trajectory: Trajectory = {
    promptIds: sample.prompt,
    responseIds: Uint32Array.from(sample.ids),
    mask: Uint8Array.from(sample.mask),
    logProbs: Float32Array.from(sample.logProbs),
    logMass: Float32Array.from(sample.logMass),
    stopReason,
    numTurns: sample.numTurns,
    numToolCalls: sample.numToolCalls,
    numToolErrors: sample.numToolErrors,
  };
  return { trajectory, messages: sample.messages, timing: sample.timing };
}

function openAiSchema({ name, description, parameters }: Tool): unknown {
  return { type: 'function', function: { name, description, parameters } };
}
