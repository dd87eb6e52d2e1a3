/** Lays out one pass that checks guesses: for each sequence a row for its last token and one for every guess after it. */

import type { Check, PrefillRows } from '../decode/decoder.ts';
import type { SlotDecoder } from '../server/schedule.ts';
import { type Running, tokensLeft } from '../server/job.ts';

/** What 0xffffffff means in accept_draft.wgsl. */
const NO_GUESS = 0xffffffff;

/** Sequences without guesses have one row. Round r holds the draws from everyone's row r. */
export function planVerify(
  decoder: SlotDecoder,
  jobs: { job: Running; guesses: number[] }[],
): { rows: PrefillRows; rounds: Check[][] } {
  const rows: PrefillRows = { tokens: [], positions: [], kvRows: [], ranges: [] };
  const rounds: Check[][] = [];
  for (const { job, guesses } of jobs) {
    const { slot, prefix } = job.sequence;
    const [prefixStart, ownStart] = [decoder.prefixStart(prefix.index), decoder.ownStart(slot)];
    const promptLength = prefix.tokens.length;
    const masks = job.guided?.guide.masks(job.guided.state, guesses, tokensLeft(job));
    const first = job.contextIds.length + job.known.length - 1 - promptLength;
    [job.known[job.known.length - 1], ...guesses].forEach((token, r) => {
      const t = first + r;
      const check = { slot, row: rows.tokens.length, expected: guesses[r] ?? NO_GUESS };
      (rounds[r] ??= []).push(masks ? { ...check, mask: masks[r] } : check);
      rows.tokens.push(token);
      rows.positions.push(promptLength + t);
      rows.kvRows.push(ownStart + t);
      rows.ranges.push(prefixStart, prefixStart + promptLength, ownStart, ownStart + t + 1);
    });
  }
  return { rows, rounds };
}

/** Cuts guesses so that all rows fit `most`: what one does not use is shared out among those that come after it. */
export function fitGuesses(guesses: number[][], most: number): number[][] {
  let room = Math.max(0, most - guesses.length);
  return guesses.map((guess, i) => {
    const cut = guess.slice(0, Math.floor(room / (guesses.length - i)));
    room -= cut.length;
    return cut;
  });
}
