/** Rows of a pass that checks guessed tokens. Each sequence has one row for its last token and one for every guess. */

import type { DraftCheck, PrefillRows } from '../../rollout/decode/decoder.ts';
import type { RunningJob } from '../../rollout/server/job.ts';
import type { SlotDecoder } from '../../rollout/server/slotDecoder.ts';

/** Marks a row that has no guess to compare with; same value as in accept_draft.wgsl. */
const NO_GUESS = 0xffffffff;

/**
 * Returns the rows of a pass for these jobs and their guesses `drafts`. Round r has the tokens to sample from row r of every sequence that
 * has such a row.
 */
export function layOutDrafts(
  decoder: SlotDecoder,
  jobs: readonly RunningJob[],
  drafts: number[][],
): { rows: PrefillRows; rounds: DraftCheck[][] } {
  const rows: PrefillRows = { tokens: [], positions: [], kvRows: [], ranges: [] };
  const rounds: DraftCheck[][] = [];
  jobs.forEach((job, j) => {
    const guesses = drafts[j];
    const { slot, prefix } = job.cached;
    const [prefixStart, ownStart] = [decoder.prefixStart(prefix.index), decoder.ownStart(slot)];
    const promptLength = prefix.tokens.length;
    const masks = job.guide?.masks(guesses, job.tokensLeft);
    const first = job.contextIds.length + job.hostTokens.length - 1 - promptLength;
    [job.hostTokens[job.hostTokens.length - 1], ...guesses].forEach((token, r) => {
      const t = first + r;
      const check = { slot, row: rows.tokens.length, expected: guesses[r] ?? NO_GUESS };
      (rounds[r] ??= []).push(masks ? { ...check, mask: masks[r] } : check);
      rows.tokens.push(token);
      rows.positions.push(promptLength + t);
      rows.kvRows.push(ownStart + t);
      rows.ranges.push(prefixStart, prefixStart + promptLength, ownStart, ownStart + t + 1);
    });
  });
  return { rows, rounds };
}

/**
 * Truncates guesses so that the pass has at most `most` rows. If a sequence has fewer guesses than its share, later ones can use the rest.
 */
export function fitDrafts(guesses: number[][], most: number): number[][] {
  let room = Math.max(0, most - guesses.length);
  return guesses.map((guess, i) => {
    const cut = guess.slice(0, Math.floor(room / (guesses.length - i)));
    room -= cut.length;
    return cut;
  });
}
