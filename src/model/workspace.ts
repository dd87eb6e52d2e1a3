/** Buffers of training and scoring, sized for the largest batch so far. */

import type { Gpu, View } from '../gpu/device.ts';
import { type BackwardScratch, createBackwardScratch } from './backward.ts';
import { type Activations, createActivations, freeActivations } from './activations.ts';
import { Head } from './head.ts';
import type { LlamaModel } from './llama.ts';

/** Arrays of a PackedBatch on the device, sized for the largest batch so far. */
interface BatchBuffers {
  /** [N] */ tokens: View;
  positions: View;
  kvRows: View;
  queryEnd: View;
  sortedRows: View;
  tokenIds: View;
  tokenStart: View;
  /** [N, 4] */ ranges: View;
  /** [R]; rowStart is [R + 1] */ headRows: View;
  rowStart: View;
  /** [E] */ rowEntries: View;
  entryRow: View;
  targets: View;
  logp: View;
  entropy: View;
  dLogp: View;
  dEntropy: View;
}

/**
 * Buffers of a WgslEngine, for batches of up to `rows` rows and `entries` predicted tokens; `freeWorkspace` frees them.
 */
export interface Workspace {
  rows: number;
  entries: number;
  batch: BatchBuffers;
  activations: Activations;
  scratch: BackwardScratch;
  head: Head;
}

interface WorkspaceSizes {
  rows: number;
  entries: number;
  /** True to store only each layer's input (activation checkpointing). */
  checkpoint: boolean;
}

/** Frees every buffer of a workspace. */
export function freeWorkspace(gpu: Gpu, { batch, activations, scratch, head }: Workspace): void {
  for (const view of Object.values<View>({ ...batch, ...scratch })) gpu.free(view);
  freeActivations(gpu, activations);
  head.free();
}

/** Allocates the buffers for batches of up to `rows` rows and `entries` entries. */
export function createWorkspace(gpu: Gpu, model: LlamaModel, { rows, entries, checkpoint }: WorkspaceSizes): Workspace {
  const u32 = (label: string, n: number) => gpu.buffer(`batch.${label}`, n * 4);
  const identity = Uint32Array.from({ length: rows }, (_, n) => n);
  const batch: BatchBuffers = {
    tokens: u32('tokens', rows),
    positions: u32('positions', rows),
    kvRows: gpu.buffer('batch.kvRows', identity),
    queryEnd: u32('queryEnd', rows),
    sortedRows: u32('sortedRows', rows),
    tokenIds: u32('tokenIds', rows),
    tokenStart: u32('tokenStart', rows + 1),
    ranges: u32('ranges', rows * 4),
    headRows: u32('headRows', rows),
    rowStart: u32('rowStart', rows + 1),
    rowEntries: u32('rowEntries', entries),
    entryRow: u32('entryRow', entries),
    targets: u32('targets', entries),
    logp: u32('logp', entries),
    entropy: u32('entropy', entries),
    dLogp: u32('dLogp', entries),
    dEntropy: u32('dEntropy', entries),
  };
  return {
    rows,
    entries,
    batch,
    activations: createActivations(gpu, model.config, rows, { lora: model.lora, half: model.half, checkpoint }),
    scratch: createBackwardScratch(gpu, model, rows),
    head: new Head(gpu, model, rows, true),
  };
}

/** Sorts rows by token, ascending, so that the kernel of the embedding gradient needs no atomics. */
export function sortByToken(tokens: Uint32Array): { ids: Uint32Array; start: Uint32Array; rows: Uint32Array } {
  const N = tokens.length;
  // Token and row are encoded as one number, because sorting with a comparison function takes several times as long.
  const keys = Float64Array.from(tokens, (token, n) => token * N + n).sort();
  const rows = Uint32Array.from(keys, (key) => key % N);
  const [ids, start]: [number[], number[]] = [[], []];
  rows.forEach((row, i) => {
    if (i > 0 && tokens[row] === tokens[rows[i - 1]]) return;
    ids.push(tokens[row]);
    start.push(i);
  });
  return { ids: Uint32Array.from(ids), start: Uint32Array.from([...start, tokens.length]), rows };
}
