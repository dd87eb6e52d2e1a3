/** Lays out the contexts of new jobs in one prefill pass: each prompt once for all jobs that share it, then the tokens after the prompt. */

import type { Draw, PrefillRows } from '../decode/decoder.ts';
import type { RunningJob } from './job.ts';
import type { Prefix } from './kvCache.ts';
import type { SlotDecoder } from './slotDecoder.ts';

interface PrefillPass {
  rows: PrefillRows;
  /** First tokens to sample, for the jobs whose context is complete in this pass. */
  draws: Draw[];
  ready: RunningJob[];
  /** Number of prompt tokens that other jobs had already computed. */
  cachedTokens: number;
}

/** Returns a prefill pass with as many context tokens of the jobs as fit. */
export function planPrefill(decoder: SlotDecoder, jobs: RunningJob[]): PrefillPass {
  const planner = new PrefillPlanner(decoder);
  const draws: Draw[] = [];
  const ready: RunningJob[] = [];
  for (const job of jobs) {
    const row = planner.add(job);
    if (row === undefined) continue;
    draws.push({ slot: job.cached.slot, row });
    ready.push(job);
  }
  return { rows: planner.rows, draws, ready, cachedTokens: planner.cachedTokens };
}

class PrefillPlanner {
  readonly rows: PrefillRows = { tokens: [], positions: [], kvRows: [], ranges: [] };
  cachedTokens = 0;
  readonly #decoder: SlotDecoder;
  /** For each prompt in the pass, the row of its last token. */
  readonly #lastRow = new Map<Prefix, number>();

  constructor(decoder: SlotDecoder) {
    this.#decoder = decoder;
  }

  /**
   * Adds the missing context tokens of a job to the pass. Returns the row of its last context token once the context is complete, in this
   * or an earlier pass.
   */
  add(job: RunningJob): number | undefined {
    const { prefix } = job.cached;
    const promptLength = prefix.tokens.length;
    const before = prefix.computed;
    while (prefix.computed < promptLength && this.#hasRoom()) this.#addPrompt(prefix, prefix.computed++);
    if (prefix.computed < promptLength) return undefined;
    if (before === promptLength) this.cachedTokens += promptLength;
    const ownTokens = job.contextIds.subarray(promptLength);
    if (ownTokens.length > 0) return this.#addOwn(job, ownTokens);
    // If the prompt is cached, only its last row runs again, to compute the logits.
    if (!this.#lastRow.has(prefix) && this.#hasRoom()) this.#addPrompt(prefix, promptLength - 1);
    return this.#lastRow.get(prefix);
  }

  #addOwn(job: RunningJob, ownTokens: Uint32Array): number | undefined {
    const { prefix, slot } = job.cached;
    const prefixStart = this.#decoder.prefixStart(prefix.index);
    const promptLength = prefix.tokens.length;
    const ownStart = this.#decoder.ownStart(slot);
    let row: number | undefined;
    while (job.computedTokens < ownTokens.length && this.#hasRoom()) {
      const t = job.computedTokens++;
      const range = [prefixStart, prefixStart + promptLength, ownStart, ownStart + t + 1];
      row = this.#addRow(ownTokens[t], promptLength + t, ownStart + t, range);
    }
    return job.computedTokens === ownTokens.length ? row : undefined;
  }

  #addPrompt(prefix: Prefix, p: number): void {
    const start = this.#decoder.prefixStart(prefix.index);
    this.#lastRow.set(prefix, this.#addRow(prefix.tokens[p], p, start + p, [0, 0, start, start + p + 1]));
  }

  #addRow(token: number, position: number, kvRow: number, range: number[]): number {
    this.rows.tokens.push(token);
    this.rows.positions.push(position);
    this.rows.kvRows.push(kvRow);
    this.rows.ranges.push(...range);
    return this.rows.tokens.length - 1;
  }

  #hasRoom(): boolean {
    return this.rows.tokens.length < this.#decoder.sizes.maxBatchedTokens;
  }
}
