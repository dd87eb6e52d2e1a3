/** Runs one tool call so that nothing a tool does can end the run: throws, hangs and floods become short texts. */

import type { Tool } from '../tasks/tool.ts';
import type { ToolCall } from './toolParser.ts';

export interface ToolLimits {
  /** Milliseconds for one call; a tool that runs longer is answered for and its signal aborted. */
  toolTimeoutMs: number;
  /** Characters of a tool's output that the model gets to see, as in verl. */
  maxToolResponseLength: number;
  /** Which part of too long an output goes: verl's tool_response_truncate_side. */
  toolResponseTruncateSide: 'left' | 'right' | 'middle';
}

export interface ToolResult {
  text: string;
  failed: boolean;
}

/**
 * The tool's output, or an error text. A synchronous endless loop cannot be cut off on its own thread: tools that run
 * code they did not write belong in a worker.
 */
export async function runTool(
  call: ToolCall,
  tools: Tool[],
  sampleId: string,
  limits: ToolLimits,
  outer?: AbortSignal,
): Promise<ToolResult> {
  if (call.error !== undefined) return { text: truncate(call.error, limits), failed: true };
  const tool = tools.find((candidate) => candidate.name === call.name);
  if (!tool) return { text: `Error: no tool "${call.name}"`, failed: true };
  try {
    const output: unknown = await withTimeLimit(tool, call.args, sampleId, limits.toolTimeoutMs, outer);
    if (typeof output !== 'string') throw new TypeError(`${tool.name} returned ${typeof output}, not a text`);
    return { text: truncate(output, limits), failed: output.startsWith('Error') };
  } catch (error) {
    return { text: truncate(`Error: ${messageOf(error)}`, limits), failed: true };
  }
}

async function withTimeLimit(
  tool: Tool,
  args: Record<string, unknown>,
  sampleId: string,
  timeoutMs: number,
  outer?: AbortSignal,
): Promise<unknown> {
  const own = new AbortController();
  const signal = outer ? AbortSignal.any([own.signal, outer]) : own.signal;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const ended = new Promise<never>((_, reject) => {
    const stop = () => reject(new Error('the run was stopped'));
    if (outer?.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
    timer = setTimeout(() => {
      reject(new Error(`${tool.name} did not answer in ${timeoutMs / 1000} s`));
      own.abort();
    }, timeoutMs);
  });
  try {
    return await Promise.race([tool.execute(args, { sampleId, signal }), ended]);
  } finally {
    clearTimeout(timer);
    // A settled race leaves no one to hear of a later rejection.
    ended.catch(() => undefined);
  }
}

function truncate(text: string, { maxToolResponseLength: limit, toolResponseTruncateSide: side }: ToolLimits): string {
  if (text.length <= limit) return text;
  const cut = '...(truncated)...';
  if (side === 'left') return cut + text.slice(text.length - limit);
  if (side === 'right') return text.slice(0, limit) + cut;
  const half = Math.floor(limit / 2);
  return text.slice(0, half) + cut + text.slice(text.length - half);
}

/** Anything can be thrown. */
function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
