/** Cuts what waiting contexts still need into one prefill pass: prompts once for all that share them, then own tokens. */

import type { Draw, PrefillRows } from '../decode/decoder.ts';
import type { SlotDecoder } from './schedule.ts';
import type { Running } from './job.ts';
import type { Prefix } from './kvCache.ts';
import type { RolloutStats } from '../types.ts';

/** Rows of the next pass, and the first draws it allows: those of jobs whose context is then complete. */
export function planPrefill(
  decoder: SlotDecoder,
  jobs: Running[],
  stats: RolloutStats,
): { rows: PrefillRows; draws: Draw[]; ready: Running[] } {
  const plan = new PrefillPlan(decoder, stats);
  const draws: Draw[] = [];
  const ready: Running[] = [];
  for (const job of jobs) {
    const row = plan.add(job);
    if (row === undefined) continue;
    draws.push({ slot: job.sequence.slot, row });
    ready.push(job);
  }
  return { rows: plan.rows, draws, ready };
}

class PrefillPlan {
  readonly rows: PrefillRows = { tokens: [], positions: [], kvRows: [], ranges: [] };
  readonly #decoder: SlotDecoder;
  readonly #stats: RolloutStats;
  /** Row of the pass that holds a prompt's last token. */
  readonly #lastRow = new Map<Prefix, number>();

  constructor(decoder: SlotDecoder, stats: RolloutStats) {
    this.#decoder = decoder;
    this.#stats = stats;
  }

  /** Adds what a job still needs; returns its last row once everything is in this or an earlier pass. */
  add(job: Running): number | undefined {
    const { prefix } = job.sequence;
    const promptLength = prefix.tokens.length;
    const before = prefix.computed;
    while (prefix.computed < promptLength && this.#room()) this.#addPrompt(prefix, prefix.computed++);
    if (prefix.computed < promptLength) return undefined;
    if (before === promptLength) this.#stats.cachedTokens += promptLength;
    const own = job.contextIds.subarray(promptLength);
    if (own.length > 0) return this.#addOwn(job, own);
    // A prompt that is already cached: its last row alone is run again, for the logits.
    if (!this.#lastRow.has(prefix) && this.#room()) this.#addPrompt(prefix, promptLength - 1);
    return this.#lastRow.get(prefix);
  }

  #addOwn(job: Running, own: Uint32Array): number | undefined {
    const { prefix, slot } = job.sequence;
    const prefixStart = this.#decoder.prefixStart(prefix.index);
    const promptLength = prefix.tokens.length;
    const ownStart = this.#decoder.ownStart(slot);
    let row: number | undefined;
    while (job.next < own.length && this.#room()) {
      const t = job.next++;
      const range = [prefixStart, prefixStart + promptLength, ownStart, ownStart + t + 1];
      row = this.#add(own[t], promptLength + t, ownStart + t, range);
    }
    return job.next === own.length ? row : undefined;
  }

  #addPrompt(prefix: Prefix, p: number): void {
    const start = this.#decoder.prefixStart(prefix.index);
    this.#lastRow.set(prefix, this.#add(prefix.tokens[p], p, start + p, [0, 0, start, start + p + 1]));
  }

  #add(token: number, position: number, kvRow: number, range: number[]): number {
    this.rows.tokens.push(token);
    this.rows.positions.push(position);
    this.rows.kvRows.push(kvRow);
    this.rows.ranges.push(...range);
    return this.rows.tokens.length - 1;
  }

  #room(): boolean {
    return this.rows.tokens.length < this.#decoder.sizes.maxBatchedTokens;
  }
}
