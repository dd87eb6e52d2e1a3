/**
 * Converts the events of a run to a Chrome trace for chrome://tracing and ui.perfetto.dev. Each step is a process, each sample a thread.
 */

import type { StepProfile } from '../../runs/profileLog.ts';
import { completions, timeline } from './profileStats.ts';

interface TraceEvent {
  name: string;
  ph: 'X' | 'M';
  pid: number;
  tid: number;
  /** Start in microseconds. */
  ts?: number;
  dur?: number;
  args?: Record<string, unknown>;
}

/** Builds the trace. On its time axis, steps follow each other without gaps. */
export function chromeTrace(steps: readonly StepProfile[]): { traceEvents: TraceEvent[]; displayTimeUnit: 'ms' } {
  let origin = 0;
  const traceEvents = steps.flatMap((profile) => {
    const events = stepEvents(profile, origin);
    const ends = [...profile.phases.map(([, , end]) => end), completions(profile).at(-1) ?? 0];
    origin += Math.max(...ends);
    return events;
  });
  return { traceEvents, displayTimeUnit: 'ms' };
}

function stepEvents(profile: StepProfile, origin: number): TraceEvent[] {
  const { step, phases, samples } = profile;
  const last = completions(profile).at(-1) ?? 0;
  const span = (
    tid: number,
    name: string,
    start: number,
    end: number,
    args: Record<string, unknown> = {},
  ): TraceEvent => ({
    name,
    ph: 'X',
    pid: step,
    tid,
    ts: Math.round((origin + start) * 1000),
    dur: Math.round((end - start) * 1000),
    args,
  });
  const name = (kind: string, tid: number, text: string): TraceEvent => ({
    name: kind,
    ph: 'M',
    pid: step,
    tid,
    args: { name: text },
  });
  return [
    name('process_name', 0, `step ${step}`),
    name('thread_name', 0, 'trainer'),
    ...phases.map(([phase, start, end]) => span(0, phase, start, end)),
    ...samples.flatMap((sample, s) => [
      name('thread_name', s + 1, `sample ${sample.id} (${sample.stop})`),
      ...timeline(sample, last).map(([kind, turn, start, end, gpuMs]) =>
        span(s + 1, kind, start, end, { turn, ...(gpuMs !== undefined && { gpuMs }) }),
      ),
    ]),
  ];
}
