/**
 * profile/step-N.jsonl of a run folder: how every sample of a step spent its time. The first line holds the phases of the step,
 * each other line one sample:
 *   {"step":1,"phases":[["generate",0,812.4],["update",815.1,1200.2]]}
 *   {"id":"0.3","problem":"train-0","stop":"completed","turns":2,"tokens":41,"toolCalls":1,"score":1,
 *    "events":[["generate",0,3.1,420.7],["parse",1,420.7,420.9],["tool",1,420.9,421.3],...]}
 * Phases are [name, start, end], events [kind, turn, start, end, GPU if known]; milliseconds since the start of the step.
 * 'sample' (sampling tokens) is a separate event if the GPU is timed (trainer.profileGpu), otherwise part of 'decode'.
 * 'sync' is the weight sync, after which rollout drops what it cached under the old weights.
 */

import type { Sample } from '../grpo/update/batch.ts';
import type { Phase } from '../grpo/types.ts';
import type { EventKind, SampleEvent } from '../rollout/agent/events.ts';

type PhaseSpan = [name: string, start: number, end: number];
export type EventSpan = [kind: EventKind, turn: number, start: number, end: number, gpuMs?: number];

export interface SampleProfile {
  /** Id of the sample, in the form group.sample. */
  id: string;
  problem: string;
  stop: string;
  turns: number;
  tokens: number;
  toolCalls: number;
  score: number;
  events: EventSpan[];
}

export interface StepProfile {
  step: number;
  phases: PhaseSpan[];
  samples: SampleProfile[];
}

/** Records the start time of each phase of a step. Called by the trainer's onPhase. */
export class PhaseClock {
  #marks: { name: Phase; at: number }[] = [];

  mark(name: Phase): void {
    this.#marks.push({ name, at: performance.now() });
  }

  /** Returns the phases from the last call until `end`, and the start time of the step. */
  take(end = performance.now()): { origin: number; phases: PhaseSpan[] } {
    const marks = this.#marks;
    this.#marks = [];
    // The step starts with 'generate': evaluations before the first step are not part of it.
    const first = Math.max(
      0,
      marks.findIndex(({ name }) => name === 'generate'),
    );
    const origin = marks[first]?.at ?? performance.now();
    const ends = [...marks.slice(first + 1).map(({ at }) => at), end];
    const phases = marks.slice(first).map(({ name, at }, i): PhaseSpan => [name, at - origin, ends[i] - origin]);
    return { origin, phases };
  }
}

/** Returns the profile of a step as it is logged. `origin` is the start of the step on the clock of the samples' events. */
export function stepProfile(
  step: number,
  samples: readonly Sample[],
  { origin, phases }: ReturnType<PhaseClock['take']>,
): StepProfile {
  const counts = new Map<number, number>();
  const made = samples.map(({ group, problem, trajectory, reward, events = [] }): SampleProfile => {
    const s = counts.get(group) ?? 0;
    counts.set(group, s + 1);
    return {
      id: `${group}.${s}`,
      problem: problem.id,
      stop: trajectory.stopReason,
      turns: trajectory.numTurns,
      tokens: trajectory.responseIds.length,
      toolCalls: trajectory.numToolCalls,
      score: reward.score,
      events: events.map((event) => spanOf(event, origin)),
    };
  });
  return { step, phases: phases.map(([name, a, b]) => [name, tenth(a), tenth(b)]), samples: made };
}

function spanOf({ kind, turn, start, end, gpuMs }: SampleEvent, origin: number): EventSpan {
  const [from, to] = [tenth(start - origin), tenth(end - origin)];
  return gpuMs === undefined ? [kind, turn, from, to] : [kind, turn, from, to, tenth(gpuMs)];
}

const tenth = (ms: number) => Math.round(ms * 10) / 10;

/** Returns the profile of a step as the text of its file. */
export function profileText({ step, phases, samples }: StepProfile): string {
  return [{ step, phases }, ...samples].map((line) => `${JSON.stringify(line)}\n`).join('');
}
