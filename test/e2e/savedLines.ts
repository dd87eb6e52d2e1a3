/** Reads the log of a run from the browser's files. */

import type { Page } from '@playwright/test';

export interface Line {
  'training/global_step': number;
  [metric: string]: number;
}

/** Returns metrics.jsonl of the newest run in the browser's files, without timings. */
export async function savedLines(page: Page): Promise<Line[]> {
  const text = await page.evaluate(async () => {
    const runs = await (await navigator.storage.getDirectory()).getDirectoryHandle('runs');
    const names: string[] = [];
    for await (const name of runs.keys()) names.push(name);
    const folder = await runs.getDirectoryHandle(names.sort().at(-1)!);
    return (await (await folder.getFileHandle('metrics.jsonl')).getFile()).text();
  });
  return text
    .trim()
    .split('\n')
    .map((line) => {
      const all = Object.entries(JSON.parse(line) as Line);
      return Object.fromEntries(all.filter(([name]) => !/^(timing|perf)/.test(name))) as Line;
    });
}
