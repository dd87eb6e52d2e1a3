/**
 * How long the page's main thread is kept busy. A busy machine stretches every task on the clock, so tasks are judged by
 * the processor time they took, which Chromium's trace records; what the page itself sees (longtask) is reported beside.
 */

import { type Browser, expect, type Page } from '@playwright/test';

interface TraceEvent {
  name: string;
  pid: number;
  tid: number;
  /** Microseconds on the clock, and of processor time. */
  dur?: number;
  tdur?: number;
  args?: { name?: string };
}

interface BusyTimes {
  tasks: number;
  /** Milliseconds of the longest task: processor time, and on the clock. */
  longestCpu: number;
  longestWall: number;
  /** `longtask` entries the page itself saw, in ms on the clock. */
  longtasks: number[];
}

/**
 * No task took 50 ms of processor time. Judged by npm test -- --full, which runs alone: beside other work the processor itself is slower.
 */
export function expectShortTasks({ longestCpu }: BusyTimes, what: string): void {
  console.log(`longest task, ${what}: ${longestCpu.toFixed(1)} ms of processor time`);
  if (process.env['FULL_TESTS'] === '1') expect(longestCpu, `ms of processor time, ${what}`).toBeLessThan(50);
}

/** Starts to watch; the returned function stops and says what was seen. */
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
    const longtasks = await page.evaluate(() => (globalThis as unknown as { longtasksSeen: number[] }).longtasksSeen);
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
  // A task that the begin or the end of the trace cuts off has no time. A trace without processor times would prove nothing.
  const tasks = all.filter(({ tdur }) => tdur !== undefined);
  if (tasks.length < 0.9 * all.length)
    throw new Error(`${all.length - tasks.length} of ${all.length} tasks have no time.`);
  const longest = (of: (event: TraceEvent) => number) =>
    tasks.reduce((max, event) => Math.max(max, of(event)), 0) / 1000;
  return {
    tasks: tasks.length,
    longestCpu: longest(({ tdur = 0 }) => tdur),
    longestWall: longest(({ dur = 0 }) => dur),
  };
}
