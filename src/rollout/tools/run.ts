/**
 * Runs one tool call. If a tool throws, hangs or returns too much, the model reads a short text. A value that cannot be
 * converted to text is the user's error and ends the run.
 */

import { describe, isA, UserCodeError } from '../../errors.ts';
import type { SampleContext, Tool, TruncateSide } from '../../tasks/tool.ts';
import { isErrorText, readToolOutput, TOOL_RETURNED } from '../../tasks/toolOutput.ts';
import { onAbort } from './onAbort.ts';
import type { ToolCall } from './parser.ts';
import { startTimer } from '../../tasks/timer.ts';

export interface ToolLimits {
  /** Time limit of one call in milliseconds. A tool that runs longer is aborted, and the model reads a timeout message. */
  toolTimeoutMs: number;
  /** Maximum number of characters of a tool's output that the model reads, as in verl. */
  maxToolResponseLength: number;
  /** Part that is removed from an output that is too long; verl's tool_response_truncate_side. */
  toolResponseTruncateSide: TruncateSide;
}

/** Reason why a call has no output from its tool. A tool that itself returns "Error: ..." has not failed. */
export type CallFailure = 'parse_error' | 'tool_failure';

export interface ToolResult {
  text: string;
  /** True if the text was truncated at `maxToolResponseLength`. */
  truncated?: true;
  /** True if there was a failure, or if the tool's text starts with "Error:". */
  failed: boolean;
  failure?: CallFailure;
  /** Reward that the tool's `execute` returned together with its text. */
  reward?: number;
  /** True if the tool ended the episode. */
  done?: boolean;
}

/** Settings on whether a failed call ends its sample ('stop') or its error is reported to the model ('tell'). */
interface FailureLimits {
  onParseError?: 'tell' | 'stop';
  onToolFailure?: 'tell' | 'stop';
}

/** Returns the first failure that must end the sample under these settings. */
export function fatalFailure(
  results: readonly ToolResult[],
  { onParseError, onToolFailure }: FailureLimits,
): CallFailure | undefined {
  const stops = (failure: CallFailure) => (failure === 'parse_error' ? onParseError : onToolFailure) === 'stop';
  return results.find(({ failure }) => failure !== undefined && stops(failure))?.failure;
}

/** The sample that a call belongs to, with the states of its tools. The state of a tool is created at the tool's first call. */
interface ToolHost {
  context: SampleContext;
  limits: ToolLimits;
  /** Aborts a running call. */
  signal: AbortSignal;
  /** Returns the sample's state of a tool; undefined for a tool without a state. */
  stateOf(tool: Tool): Promise<unknown> | undefined;
}

/** A tool call has exceeded its time limit. */
export class TimeLimitError extends Error {}

/**
 * Runs a call. Returns the tool's output, or an error text. A synchronous endless loop cannot be stopped on its own thread, so tools that
 * run untrusted code must use a worker. Throws UserCodeError if the tool returned a value that is not a ToolOutput.
 */
export async function runTool(call: ToolCall, tools: readonly Tool[], host: ToolHost): Promise<ToolResult> {
  const { limits } = host;
  if (call.error !== undefined) return { ...truncate(call.error, limits), failed: true, failure: 'parse_error' };
  const tool = tools.find((candidate) => candidate.name === call.name);
  if (!tool) return { text: `Error: no tool "${call.name}"`, failed: true, failure: 'parse_error' };
  const toolLimits = limitsOf(tool, limits);
  for (let left = tool.retries ?? 0; ; left--) {
    try {
      const run = (signal: AbortSignal) => execute(tool, call.args, host, signal);
      const output = await withTimeLimit(tool.name, run, toolLimits.toolTimeoutMs, host.signal);
      const { text, ...more } = readToolOutput(tool.name, call.args, output);
      return { ...truncate(text, toolLimits), failed: isErrorText(text), ...more };
    } catch (error) {
      if (isA(error, UserCodeError) && error.kind === TOOL_RETURNED) throw error;
      if (left > 0 && !host.signal.aborted) continue;
      return { ...truncate(`Error: ${describe(error)}`, toolLimits), failed: true, failure: 'tool_failure' };
    }
  }
}

async function execute(tool: Tool, args: Record<string, unknown>, host: ToolHost, signal: AbortSignal) {
  const pending = host.stateOf(tool);
  const state = pending && (await pending);
  return tool.execute(args, { ...host.context, state, signal });
}

/** Returns the limits of a tool's calls: the tool's own, and the run's for those that the tool does not set. */
export function limitsOf(
  tool: Pick<Tool, 'timeoutMs' | 'maxResponseLength' | 'truncateSide'>,
  limits: ToolLimits,
): ToolLimits {
  return {
    toolTimeoutMs: tool.timeoutMs ?? limits.toolTimeoutMs,
    maxToolResponseLength: tool.maxResponseLength ?? limits.maxToolResponseLength,
    toolResponseTruncateSide: tool.truncateSide ?? limits.toolResponseTruncateSide,
  };
}

/**
 * Resolves or rejects like the promise of `work`. Rejects earlier if `work` takes too long or if `outer` aborts, and then aborts the signal
 * that was passed to `work`.
 */
export async function withTimeLimit<T>(
  name: string,
  work: (signal: AbortSignal) => T | Promise<T>,
  timeoutMs: number,
  outer: AbortSignal,
): Promise<T> {
  const controller = new AbortController();
  const stop = () => controller.abort();
  const stopWaiting = onAbort(outer, stop);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const ended = new Promise<never>((_, reject) => {
    controller.signal.addEventListener('abort', () => reject(new Error('the run was stopped')), { once: true });
    if (outer.aborted) stop();
    timer = startTimer(() => {
      reject(new TimeLimitError(`${name} did not answer in ${timeoutMs / 1000} s`));
      stop();
    }, timeoutMs);
  });
  try {
    return await Promise.race([work(controller.signal), ended]);
  } finally {
    clearTimeout(timer);
    stopWaiting();
    // Handles a rejection that arrives after the race has settled. It would be reported as unhandled otherwise.
    ended.catch(() => undefined);
  }
}

/** Truncates a text to `limit` characters at the given side, and replaces lone surrogates. */
export function truncate(
  text: string,
  { maxToolResponseLength: limit, toolResponseTruncateSide: side }: ToolLimits,
): Pick<ToolResult, 'text' | 'truncated'> {
  // The tokenizer would encode a lone surrogate as U+FFFD, and other code refuses files that contain one.
  if (text.length <= limit) return { text: wellFormed(text) };
  const cut = '...(truncated)...';
  const kept = side === 'middle' ? Math.floor(limit / 2) : limit;
  const head = side === 'left' ? '' : text.slice(0, kept).replace(/[\ud800-\udbff]$/, '');
  const tail = side === 'right' ? '' : text.slice(text.length - kept).replace(/^[\udc00-\udfff]/, '');
  return { text: wellFormed(head + cut + tail), truncated: true };
}

const wellFormed = (text: string): string => text.replace(/\p{Surrogate}/gu, '\ufffd');
