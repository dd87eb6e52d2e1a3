/** Reads the log of a run: from the browser's files, or from the file that the page saves. */

import { readFile } from 'node:fs/promises';
import type { Page } from '@playwright/test';

export interface Line {
  'training/global_step': number;
  [metric: string]: number;
}

const parse = (text: string) =>
  text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Line);

/** Removes the metrics that a clock measured. */
export const untimed = (lines: Line[]): Line[] =>
  lines.map(
    (line) => Object.fromEntries(Object.entries(line).filter(([name]) => !/^(timing|perf)/.test(name))) as Line,
  );

/** Returns the names in a folder of the browser's files. */
export const storedIn = (page: Page, folder: string): Promise<string[]> =>
  page.evaluate(async (folder) => {
    const root = await navigator.storage.getDirectory();
    const names: string[] = [];
    for await (const name of (await root.getDirectoryHandle(folder, { create: true })).keys()) names.push(name);
    return names;
  }, folder);

/** Returns metrics.jsonl of the newest run in the browser's files, without timings. */
export async function savedLines(page: Page): Promise<Line[]> {
  const text = await page.evaluate(async () => {
    const runs = await (await navigator.storage.getDirectory()).getDirectoryHandle('runs');
    const names: string[] = [];
    for await (const name of runs.keys()) names.push(name);
    const folder = await runs.getDirectoryHandle(names.sort().at(-1)!);
    return (await (await folder.getFileHandle('metrics.jsonl')).getFile()).text();
  });
  return untimed(parse(text));
}

/** Returns metrics.jsonl as the button "Download metrics" saves it. */
export async function downloadedLines(page: Page): Promise<Line[]> {
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'Download metrics' }).click(),
  ]);
  return parse(await readFile(await download.path(), 'utf8'));
}
