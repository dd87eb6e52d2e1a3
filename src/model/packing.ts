/** Packs groups of samples into PackedBatches of at most `maxTokenLen` rows. */

import type { PackedBatch } from './engine.ts';
import { InputError } from '../errors.ts';

/** A prompt and the samples that follow it. A plain sequence is a group with one sample. */
export interface SequenceGroup {
  /** Prompt tokens, with which all samples start; each layer computes them once. */
  prompt: Uint32Array;
  /** mask[t] = 1 if tokens[t] is predicted, that is, trained or scored. */
  samples: { tokens: Uint32Array; mask: Uint8Array }[];
}

/**
 * One micro-batch, and for each entry (predicted token) where it comes from. Samples without a predicted token are in
 * no micro-batch; a group can be spread over several.
 */
export interface MicroBatch {
  /** All sequences of the micro-batch, concatenated to rows. */
  batch: PackedBatch;
  /** [E] index into `groups` */
  entryGroup: Uint32Array;
  /** [E] index into the `samples` of the entry's group */
  entrySample: Uint32Array;
  /** [E] index into the `tokens` of the entry's sample */
  entryPosition: Uint32Array;
}

/** A sample to pack. Its rows are the tokens before the last predicted one; later tokens are not needed. */
interface Piece {
  group: number;
  sample: number;
  tokens: Uint32Array;
  mask: Uint8Array;
  rows: number;
}

/**
 * Splits groups into micro-batches. A group stays together if it fits into `maxTokenLen` rows; otherwise its samples
 * are split over several micro-batches that each repeat the prompt. Order is kept. `maxSequences` also limits the
 * number of samples in a micro-batch. Throws InputError for a sample that cannot fit, an empty prompt, or a mask whose
 * length differs from its tokens.
 */
export function packGroups(groups: SequenceGroup[], maxTokenLen: number, maxSequences = Infinity): MicroBatch[] {
  const cuts: Piece[][] = [];
  let current: Piece[] = [];
  let used = 0;
  const flush = () => {
    if (current.length > 0) cuts.push(current);
    current = [];
    used = 0;
  };
  for (const [g, group] of groups.entries()) {
    const pieces = groupPieces(group, g);
    if (pieces.length === 0) continue;
    const promptRows = group.prompt.length;
    const total = pieces.reduce((sum, piece) => sum + piece.rows, promptRows);
    if (used + total > maxTokenLen) flush();
    for (const piece of pieces) {
      checkFits(piece, promptRows, maxTokenLen);
      const cost = () => piece.rows + (current.at(-1)?.group === g ? 0 : promptRows);
      if (used + cost() > maxTokenLen || current.length >= maxSequences) flush();
      used += cost();
      current.push(piece);
    }
  }
  flush();
  return cuts.map((pieces) => packPieces(groups, pieces));
}

/**
 * Returns the samples of a group that have a token with mask 1 (a predicted token). Of each, only the tokens before the
 * last predicted one become rows.
 */
function groupPieces(group: SequenceGroup, index: number): Piece[] {
  if (group.prompt.length === 0) {
    throw new InputError(`Group ${index} has an empty prompt. At least one token must precede the first response.`);
  }
  return group.samples.flatMap(({ tokens, mask }, sample) => {
    if (tokens.length !== mask.length) {
      throw new InputError(`Group ${index} sample ${sample} has ${tokens.length} tokens but a mask of ${mask.length}.`);
    }
    const rows = mask.lastIndexOf(1);
    return rows < 0 ? [] : [{ group: index, sample, tokens, mask, rows }];
  });
}

function checkFits({ group, sample, rows }: Piece, promptRows: number, maxTokenLen: number): void {
  if (promptRows + rows <= maxTokenLen) return;
  throw new InputError(
    `Group ${group} sample ${sample} needs ${promptRows + rows} rows (prompt ${promptRows} + response ${rows}), ` +
      `but maxTokenLen is ${maxTokenLen}. Raise maxTokenLen or shorten the prompt or response.`,
  );
}

/** Builds one micro-batch. Samples of one group must be neighbours in `pieces`. */
function packPieces(groups: SequenceGroup[], pieces: Piece[]): MicroBatch {
  const rows = new RowWriter();
  const entries: { row: number; target: number; group: number; sample: number; position: number }[] = [];
  const seqStart = [0];
  let prompt = { start: 0, end: 0 };
  for (const [i, piece] of pieces.entries()) {
    const { group, sample, tokens, mask } = piece;
    if (pieces[i - 1]?.group !== group) {
      const members = pieces.slice(i).filter((p) => p.group === group);
      const responses = members.reduce((sum, p) => sum + p.rows, 0);
      prompt = rows.addPrompt(groups[group].prompt, responses);
    }
    const start = rows.addResponse(tokens.subarray(0, piece.rows), prompt);
    for (let t = 0; t <= piece.rows; t++) {
      if (mask[t] !== 1) continue;
      const row = t === 0 ? prompt.end - 1 : start + t - 1;
      entries.push({ row, target: tokens[t], group, sample, position: t });
    }
    seqStart.push(entries.length);
  }
  const batch: PackedBatch = {
    ...rows.take(),
    ...headRowTables(entries.map((e) => e.row)),
    targets: Uint32Array.from(entries, (e) => e.target),
    seqStart: Uint32Array.from(seqStart),
  };
  return {
    batch,
    entryGroup: Uint32Array.from(entries, (e) => e.group),
    entrySample: Uint32Array.from(entries, (e) => e.sample),
    entryPosition: Uint32Array.from(entries, (e) => e.position),
  };
}

/** Collects rows, with the range of key rows that each row sees and the last row that sees it. */
class RowWriter {
  readonly #tokens: number[] = [];
  readonly #positions: number[] = [];
  readonly #ranges: number[] = [];
  readonly #queryEnd: number[] = [];

  /** Adds prompt rows. Later prompt rows and all `responseRows` that follow see them. */
  addPrompt(prompt: Uint32Array, responseRows: number): { start: number; end: number } {
    const start = this.#tokens.length;
    const end = start + prompt.length;
    for (let t = 0; t < prompt.length; t++) {
      this.#add(prompt[t], t, [start, start, start, start + t + 1], end + responseRows);
    }
    return { start, end };
  }

  /**
   * Adds response rows, which see the prompt and earlier rows of their own sequence. Returns the index of the first
   * row.
   */
  addResponse(tokens: Uint32Array, prompt: { start: number; end: number }): number {
    const start = this.#tokens.length;
    const promptLength = prompt.end - prompt.start;
    for (let t = 0; t < tokens.length; t++) {
      const ranges = [prompt.start, prompt.end, start, start + t + 1];
      this.#add(tokens[t], promptLength + t, ranges, start + tokens.length);
    }
    return start;
  }

  take(): Pick<PackedBatch, 'tokens' | 'positions' | 'ranges' | 'queryEnd'> {
    return {
      tokens: Uint32Array.from(this.#tokens),
      positions: Uint32Array.from(this.#positions),
      ranges: Uint32Array.from(this.#ranges),
      queryEnd: Uint32Array.from(this.#queryEnd),
    };
  }

  #add(token: number, position: number, ranges: number[], queryEnd: number): void {
    this.#tokens.push(token);
    this.#positions.push(position);
    this.#ranges.push(...ranges);
    this.#queryEnd.push(queryEnd);
  }
}

/** Computes the distinct rows that predict a token and, for each, its entries in ascending order. */
function headRowTables(rowOfEntry: number[]): Pick<PackedBatch, 'headRows' | 'rowStart' | 'rowEntries' | 'entryRow'> {
  const headRows = Uint32Array.from(new Set(rowOfEntry)).sort();
  const indexOf = new Map(Array.from(headRows, (row, index) => [row, index]));
  const entryRow = Uint32Array.from(rowOfEntry, (row) => indexOf.get(row)!);
  const rowStart = new Uint32Array(headRows.length + 1);
  for (const row of entryRow) rowStart[row + 1]++;
  for (let r = 0; r < headRows.length; r++) rowStart[r + 1] += rowStart[r];
  const next = rowStart.slice();
  const rowEntries = new Uint32Array(rowOfEntry.length);
  entryRow.forEach((row, entry) => {
    rowEntries[next[row]++] = entry;
  });
  return { headRows, rowStart, rowEntries, entryRow };
}

/**
 * Packs plain sequences for `ModelEngine.logProbs`; every token except the first is predicted. `entryGroup` is the
 * sequence of an entry, and `entryPosition + 1` its position in it. Throws InputError for a sequence longer than
 * `maxTokenLen`.
 */
export const packIds = (sequences: readonly Uint32Array[], maxTokenLen: number): MicroBatch[] =>
  packGroups(
    sequences.map((ids) => ({
      prompt: ids.slice(0, 1),
      samples: [{ tokens: ids.slice(1), mask: new Uint8Array(Math.max(0, ids.length - 1)).fill(1) }],
    })),
    maxTokenLen,
  );
