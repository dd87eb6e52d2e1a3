/** Selects the checkpoints of a run to keep when there is too little space: the newest two, and of the others the most evenly spaced. */

import { checkpointSteps } from '../../src/runs/checkpointFolder.ts';
import { readManifest } from '../../src/runs/manifest.ts';
import type { RunFolder } from '../../src/runs/runFolder.ts';

/** Maximum number of bytes of checkpoints of the newest run, and of each older one. A checkpoint of the page's own model takes about 5 MiB. */
export const NEWEST_BYTES = 96 * 2 ** 20;
export const OLDER_BYTES = 24 * 2 ** 20;

/** Always kept: the newest checkpoint, and the previous one in case the newest is damaged. */
const ALWAYS = 2;

interface SizedStep {
  step: number;
  bytes: number;
}

/** Returns the steps to keep, in order. @param saved in order */
export function evenlySpaced(saved: readonly SizedStep[], budget: number): number[] {
  const kept = [...saved];
  while (kept.length > ALWAYS && kept.reduce((sum, { bytes }) => sum + bytes, 0) > budget)
    kept.splice(mostCrowded(kept), 1);
  return kept.map(({ step }) => step);
}

/** Returns the index of the step whose removal leaves the smallest gap. The start of a run needs no checkpoint. */
function mostCrowded(kept: readonly SizedStep[]): number {
  const gap = (i: number) => kept[i + 1].step - (kept[i - 1]?.step ?? 0);
  const places = kept.slice(0, -ALWAYS).map((_, i) => i);
  return places.reduce((best, i) => (gap(i) < gap(best) ? i : best), 0);
}

/** Deletes checkpoints of a run until the others fit. */
export async function thinCheckpoints(folder: RunFolder, budget: number): Promise<void> {
  const steps = await checkpointSteps(folder.files, folder.path);
  const sized = await Promise.all(steps.map(async (step) => ({ step, bytes: await bytesOf(folder, step) })));
  const kept = evenlySpaced(sized, budget);
  for (const step of steps) if (!kept.includes(step)) await folder.files.remove(folder.checkpoint(step));
}

async function bytesOf(folder: RunFolder, step: number): Promise<number> {
  const manifest = await readManifest(folder.files, folder.checkpoint(step)).catch(() => undefined); // a damaged checkpoint
  return Object.values(manifest?.files ?? {}).reduce((sum, { bytes }) => sum + bytes, 0);
}
