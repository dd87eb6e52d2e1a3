/**
 * Measures how long the page's main thread is busy. On a busy machine every task takes longer, so tasks are judged by their processor time
 * from Chromium's trace. The page's own measurement (longtask) is reported in addition.
 */

import { type Browser, expect, type Page } from '@playwright/test';

interface TraceEvent {
  name: string;
  pid: number;
  tid: number;
  /** Microseconds of wall time, and of processor time, of one task. */
  dur?: number;
  tdur?: number;
  args?: { name?: string };
}

interface BusyTimes {
  tasks: number;
  /** Milliseconds of the longest task: processor time, and wall time. */
  longestCpu: number;
  longestWall: number;
  /** `longtask` entries that the page itself recorded, in ms of wall time. */
  longtasks: number[];
}

/**
 * Expects that no task took 50 ms of processor time. Only `npm test -- --full` measures this, while nothing else runs: a processor is
 * slower if it is shared.
 */
export function expectShortTasks({ longestCpu }: BusyTimes, what: string): void {
  console.log(`longest task, ${what}: ${longestCpu.toFixed(1)} ms of processor time`);
  expect(longestCpu, `ms of processor time, ${what}`).toBeLessThan(50);
}

/** Starts the measurement. The returned function stops it and returns the results. */
export async function watchMainThread(browser: Browser, page: Page): Promise<() => Promise<BusyTimes>> {
  await page.evaluate(() => {
    const seen: number[] = [];
    Object.assign(globalThis, { longtasksSeen: seen });
    new PerformanceObserver((list) => seen.push(...list.getEntries().map(({ duration }) => duration))).observe({
      type: 'longtask',
    });
  });
  await browser.startTracing(page, { categories: ['disabled-by-default-devtools.timeline'] });
  return async () => {
    const longtasks = await page.evaluate<number[]>('longtasksSeen');
    const trace = JSON.parse((await browser.stopTracing()).toString()) as { traceEvents: TraceEvent[] };
    return { ...busyTimes(trace.traceEvents), longtasks };
  };
}

function busyTimes(events: TraceEvent[]): Omit<BusyTimes, 'longtasks'> {
  const thread = ({ pid, tid }: TraceEvent) => `${pid}.${tid}`;
  const mains = new Set(
    events.filter((e) => e.name === 'thread_name' && e.args?.name === 'CrRendererMain').map(thread),
  );
  const all = events.filter((event) => event.name === 'RunTask' && mains.has(thread(event)));
  // Chromium omits a processor time of 0, which its clock shows for a task of microseconds. A trace without the times of longer tasks would
  // prove nothing. A task that was running when the trace started or ended has no duration at all.
  const long = all.filter(({ dur = 0 }) => dur >= 1000);
  const untimed = long.filter(({ tdur }) => tdur === undefined).length;
  if (untimed > 0.01 * long.length)
    throw new Error(`${untimed} of ${long.length} tasks of at least 1 ms have no processor time.`);
  const longest = (of: (event: TraceEvent) => number) => all.reduce((max, event) => Math.max(max, of(event)), 0) / 1000;
  return {
    tasks: all.length,
    longestCpu: longest(({ tdur = 0 }) => tdur),
    longestWall: longest(({ dur = 0 }) => dur),
  };
}
