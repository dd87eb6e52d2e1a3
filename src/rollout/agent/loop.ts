/**
 * Agent loops. Each loop drives one sample from its prompt to its last token. As in verl, loops are registered by name: `single_turn`,
 * `tool_agent`, and custom loops. Every sample runs its own loop, so a slow tool delays no other sample.
 */

import { InputError, shownValue, UserCodeError } from '../../errors.ts';
import { REGISTER_IT, shareEntries } from '../../shared.ts';
import { problemName } from '../../tasks/problem.ts';
import type { Message, Problem } from '../../tasks/task.ts';
import { onAbort } from '../tools/onAbort.ts';
import type { Span } from './events.ts';
import { isSingleTurn } from './prompt.ts';
import { runOwnLoop, WatchedSample } from './ownLoop.ts';
import { AgentSample } from './sample.ts';
import type { AgentLoopInput } from './types.ts';
import { takeTurn } from './yield.ts';
import type { StopReason, Trajectory } from '../types.ts';
import { startTimer } from '../../tasks/timer.ts';

/**
 * Runs a sample to its end and returns the reason. An exception ends the run, or only the sample if trainer.onError is skip. Failing tools
 * and tool calls end neither: the model reads their error as text. The reward function finds the loop's `sample.state` as
 * ScoredSample.state.
 */
export type AgentLoop = (sample: AgentSample) => Promise<StopReason>;

export interface AgentLoopOutput {
  trajectory: Trajectory;
  /** Decoded assistant and tool messages after the prompt, in order. */
  messages: Message[];
  /** Rewards of stateful tools, by tool; see Tool.calcReward. */
  toolRewards: Record<string, number>;
  /** See ScoredSample.turnRewards. */
  turnRewards: number[];
  /** Final states of stateful tools and of the environment, by name. */
  toolStates: Record<string, unknown>;
  /** First observation of the environment, or ''. */
  observation: string;
  /** Value that the loop has set as `sample.state`. */
  state: unknown;
  /** Milliseconds that the sample waited for the engine, and the spans in which it waited for its tools. */
  timing: { generateMs: number; tools: Span[] };
  /** Error of the user's loop, tool parser or tool, if `onError` is 'skip' and one of them failed. */
  fault?: UserCodeError;
}

/** Agent loop `single_turn`: generates one answer. Tool calls in the answer stay plain text. */
const singleTurn: AgentLoop = async (sample) => (await sample.generate()).stop ?? 'completed';

/**
 * Agent loop `tool_agent`: generates, runs the tool calls, appends their outputs and generates again, until a turn has no call. If the
 * environment has a `step`, it replies to a turn without a call, and the loop continues.
 */
const toolAgent: AgentLoop = async (sample) => {
  for (;;) {
    const turn = await sample.generate();
    if (turn.stop) return turn.stop;
    if (turn.calls.length === 0 && !sample.canStep) return 'completed';
    const stop = turn.calls.length > 0 ? await sample.callTools(turn.calls) : await sample.step(turn.content);
    if (stop) return stop;
  }
};

const LOOPS = new Map<string, AgentLoop>([
  ['single_turn', singleTurn],
  ['tool_agent', toolAgent],
]);

const share = shareEntries<AgentLoop>('agent loop', (name, loop) => LOOPS.set(name, loop));

/**
 * Registers a loop for `rollout.agent.defaultAgentLoop` and for a problem's `agentName` (verl's agent_name). Throws
 * InputError if `loop` is not a function.
 */
export function registerAgentLoop(name: string, loop: AgentLoop): void {
  if (typeof loop !== 'function')
    throw new InputError(
      `The agent loop "${name}" is ${shownValue(loop)}, not a function. Register async (sample) => { ... }.`,
    );
  share(name, loop);
}

/** Returns the agent loop registered under the name. Throws InputError for an unknown name. */
export function agentLoopOf(name: string): AgentLoop {
  const loop = registered(name);
  if (loop) return loop;
  throw new InputError(
    `There is no agent loop "${name}"; registered: ${[...LOOPS.keys()].join(', ')}. Name one of them. ${REGISTER_IT}`,
  );
}

/** Returns the agent loop of the name. A loop that was registered under verl's name of a built-in loop has priority over that one. */
function registered(name: string): AgentLoop | undefined {
  return LOOPS.get(name) ?? (isSingleTurn(name) ? LOOPS.get('single_turn') : undefined);
}

/** Throws InputError if the problem names an agent loop that is not registered. */
export function checkAgentName(problem: Problem): void {
  const { agentName } = problem;
  if (agentName === undefined || registered(agentName)) return;
  throw new InputError(
    `${problemName(problem)} names the agent loop ${shownValue(agentName)}; registered: ${[...LOOPS.keys()].join(', ')}. ` +
      `Name one of these (agent_name, agentName), or register it by registerAgentLoop. ${REGISTER_IT}`,
  );
}

/**
 * Runs a problem's agent loop. Throws InputError if the prompt is longer than the limits. Unless `onError` is 'skip',
 * throws UserCodeError if a custom loop or tool parser fails or a tool returns an invalid value. If a tool throws, the
 * model reads an error message.
 */
export async function runAgentLoop(input: AgentLoopInput): Promise<AgentLoopOutput> {
  checkAgentName(input.problem);
  const name = loopName(input);
  const loop = agentLoopOf(name);
  const arrived = performance.now();
  await takeTurn();
  input.onEvent?.({ kind: 'start', turn: 0, start: arrived, end: performance.now() });
  const { engine, requestId, signal: outer, limits } = input;
  const ended = new AbortController();
  const own = [singleTurn, toolAgent].includes(loop) ? undefined : new WatchedSample(input, ended.signal);
  const sample = own ?? new AgentSample(input, ended.signal);
  const end = () => {
    ended.abort();
    engine.abort([requestId]);
  };
  if (outer?.aborted) ended.abort();
  const stopWaiting = outer && onAbort(outer, end);
  const timer = startTimer(() => {
    sample.timeOut();
    end();
  }, limits.sampleTimeoutMs ?? Infinity);
  let fault: UserCodeError | undefined;
  const failed = (error: unknown): StopReason => {
    if (!(error instanceof UserCodeError) || input.onError !== 'skip') throw error;
    fault = error;
    return 'error';
  };
  try {
    const run = async () => {
      await sample.start();
      return own ? runOwnLoop(name, loop, own, input, ended.signal) : loop(sample);
    };
    let wrong: UserCodeError | undefined;
    let stopReason: StopReason;
    try {
      stopReason = await run().catch(failed);
    } finally {
      wrong = await sample.endTools();
    }
    if (wrong && !fault) stopReason = failed(wrong);
    const { messages, timing, toolRewards, turnRewards, toolStates, state, observation } = sample;
    const trajectory = AgentSample.prototype.trajectory.call(sample, stopReason);
    const output = { trajectory, messages, timing, toolRewards, turnRewards, toolStates, state, observation };
    return fault ? { ...output, messages: [], fault } : output; // messages of a failed loop are not used
  } finally {
    if (own) ended.abort(); // a loop that did not return in time generates no more
    clearTimeout(timer);
    stopWaiting?.();
    if (sample.generating) {
      engine.abort([requestId]); // the loop has returned without awaiting this turn
      await sample.generating.catch(() => {}); // the result is not used
    }
    engine.release(requestId);
  }
}

/** Name of the agent loop of a problem: the problem's `agentName`, as in verl's data sets, or by default the `agentLoop` of the input. */
function loopName({ problem, agentLoop = 'tool_agent' }: AgentLoopInput): string {
  return problem.agentName ?? agentLoop;
}
