/** Groups that are generated with a record of each sample, so that a checkpoint can hold them and a run continue with them. */

import { SampleRecord, StartLine } from '../../rollout/agent/record.ts';
import { nextTask } from '../../rollout/agent/yield.ts';
import type { RolloutEngine } from '../../rollout/types.ts';
import type { SavedGroup } from '../generate/inFlight.ts';
import type { PendingGroup } from '../generate/pendingGroups.ts';
import { type SourceOptions, startGroups, stepOptions } from '../generate/samples.ts';

/** A group as it was started, with a record of each of its samples. */
export interface RecordedGroup extends PendingGroup {
  origin: Omit<SavedGroup, 'samples'>;
  records: SampleRecord[];
}

/** Starts a group's samples, those that were saved from where they stood. @param line where saved ones wait for each other */
export function startRecorded(
  source: SourceOptions,
  { samples: saved, ...origin }: SavedGroup,
  line?: StartLine,
): RecordedGroup {
  const { number, problem, step } = origin;
  const controller = new AbortController();
  const options = stepOptions(source, step);
  const records = Array.from({ length: options.n }, (_, s) => new SampleRecord(saved[s], line));
  const { signal } = controller;
  const { groups, seconds } = startGroups([problem], { ...options, firstGroup: number, signal, records });
  return { problem: number, samples: groups[0], seconds, abort: () => controller.abort(), origin, records };
}

/**
 * Resumes the groups of a checkpoint, which `add` gets at once; afterwards the engine has their turns, and is paused.
 */
export async function restartRecorded(
  source: SourceOptions,
  saved: readonly SavedGroup[],
  add: (groups: RecordedGroup[]) => void,
): Promise<void> {
  const { engine, problems } = source;
  await engine.rollout.pause?.();
  const line = new StartLine();
  const restored = await Promise.all(saved.map((group) => problems.restored(group)));
  add(saved.map((group, i) => startRecorded(source, { ...group, problem: restored[i] }, line)));
  await line.opened(toolMs(source));
  await nextTask(); // groups all of whose samples had ended are complete again
}

/**
 * Each sample where it stands; waits for tools and rewards that are running, within their time. The engine is paused afterwards.
 */
export async function saveRecorded(source: SourceOptions, groups: readonly RecordedGroup[]): Promise<SavedGroup[]> {
  if (groups.length === 0) return [];
  const rollout: RolloutEngine = source.engine.rollout;
  await rollout.pause?.();
  const all = groups.flatMap(({ records }) => records);
  await atMost(toolMs(source), Promise.all(all.map((record) => record.idle())));
  const ids = all.flatMap(({ requestId }) => requestId ?? []);
  const drawn = await rollout.drawnSoFar?.(ids);
  const drawnBy = new Map(ids.map((id, i) => [id, drawn?.[i]]));
  const save = (record: SampleRecord) => record.save(drawnBy.get(record.requestId ?? ''));
  return Promise.all(
    groups.map(async ({ origin, records }) => ({ ...origin, samples: await Promise.all(records.map(save)) })),
  );
}

const toolMs = ({ config }: SourceOptions): number => config.rollout.multiTurn.toolTimeoutS * 1000;

async function atMost(ms: number, work: Promise<unknown>): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  await Promise.race([work, new Promise<void>((resolve) => (timer = setTimeout(resolve, ms)))]);
  clearTimeout(timer);
}
