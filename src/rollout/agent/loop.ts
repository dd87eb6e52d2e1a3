/**
 * Agent loops: each drives one sample from its prompt to its last token. After verl's, registered by name: `single_turn`,
 * `tool_agent`, and a user's own. Every sample runs its own loop; a slow tool delays no other sample.
 */

import { InputError, shownValue, UserCodeError } from '../../errors.ts';
import { problemName } from '../../tasks/problem.ts';
import type { Message, Problem } from '../../tasks/task.ts';
import { onAbort } from '../tools/onAbort.ts';
import { runOwnLoop, WatchedSample } from './ownLoop.ts';
import { AgentSample } from './sample.ts';
import type { AgentLoopInput } from './types.ts';
import { takeTurn } from './yield.ts';
import type { StopReason, Trajectory } from '../types.ts';

/**
 * Runs a sample to its end and returns the reason. An exception ends the run, or under trainer.onError: skip the sample
 * alone; tools and calls fail by text instead. What it sets as `sample.state` the reward function finds as ScoredSample.state.
 */
export type AgentLoop = (sample: AgentSample) => Promise<StopReason>;

export interface AgentLoopOutput {
  trajectory: Trajectory;
  /** Assistant and tool messages after the prompt, decoded. */
  messages: Message[];
  /** Rewards of stateful tools, by tool; see Tool.calcReward. */
  toolRewards: Record<string, number>;
  /** See ScoredSample.turnRewards. */
  turnRewards: number[];
  /** States of stateful tools and of the environment as they were at the end, by name. */
  toolStates: Record<string, unknown>;
  /** The environment's first observation; '' = none. */
  observation: string;
  /** What the loop set. */
  state: unknown;
  /** Milliseconds this sample waited for the engine and for its tools. */
  timing: { generateMs: number; toolsMs: number };
  /** What the user's loop, tool parser or tool did wrong, where `onError` is 'skip'. */
  fault?: UserCodeError;
}

/** One answer; tool calls in it are plain text. */
const singleTurn: AgentLoop = async (sample) => (await sample.generate()).stop ?? 'completed';

/**
 * Generate, run the tool calls, append their output, generate again, until a turn has no call. An environment with a `step`
 * answers such a turn, and the loop continues.
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

/** Names that rows of verl's data sets have. A loop that is registered under one of them comes first. */
const VERL_NAMES: Readonly<Record<string, string>> = { single_turn_agent: 'single_turn' };

/** Makes a loop known as `rollout.agent.defaultAgentLoop`, or to a problem by its `agentName` (verl's agent_name). */
export function registerAgentLoop(name: string, loop: AgentLoop): void {
  LOOPS.set(name, loop);
}

/** Throws InputError for a name that is not registered. */
export function agentLoopOf(name: string): AgentLoop {
  const loop = registered(name);
  if (loop) return loop;
  throw new InputError(`There is no agent loop "${name}"; registered: ${[...LOOPS.keys()].join(', ')}.`);
}

function registered(name: string): AgentLoop | undefined {
  return LOOPS.get(name) ?? LOOPS.get(VERL_NAMES[name]);
}

/** Throws InputError if the problem names an agent loop that is not registered. */
export function checkAgentName(problem: Problem): void {
  const { agentName } = problem;
  if (agentName === undefined || registered(agentName)) return;
  throw new InputError(
    `${problemName(problem)} names the agent loop ${shownValue(agentName)}; registered: ${[...LOOPS.keys()].join(', ')}. ` +
      'Name one of these (agent_name, agentName), or register it by registerAgentLoop.',
  );
}

/**
 * Runs a problem's agent loop. Throws InputError on a prompt longer than the limits, UserCodeError where the user's own loop
 * or tool parser fails, or a tool returns what it must not, and `onError` is not 'skip'; a tool that throws is told to the model.
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
  const timer = startTimer(limits.sampleTimeoutMs, () => {
    sample.timeOut();
    end();
  });
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
    return fault ? { ...output, messages: [], fault } : output; // what a failed loop left there is no one's to read
  } finally {
    if (own) ended.abort(); // a loop that was left behind generates no more
    clearTimeout(timer);
    stopWaiting?.();
    if (sample.generating) {
      engine.abort([requestId]); // the loop has left without waiting for it
      await sample.generating.catch(() => {}); // nobody is left to hear of it
    }
    engine.release(requestId);
  }
}

function startTimer(ms: number | undefined, onEnd: () => void) {
  return ms === undefined ? undefined : setTimeout(onEnd, ms);
}

/** A problem may ask for a loop of its own, as verl's data sets do. */
function loopName({ problem, agentLoop = 'tool_agent' }: AgentLoopInput): string {
  return problem.agentName ?? agentLoop;
}
