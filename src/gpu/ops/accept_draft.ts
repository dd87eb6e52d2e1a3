import code from '../../../kernels/accept_draft.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { groupsOf } from './grid.ts';

const acceptDraftKernel = defineKernel({
  name: 'accept_draft',
  code,
  read: ['entries'],
  write: ['state'],
  params: { first: 'u32', n: 'u32', resume: 'u32' },
});

interface AcceptDraftArgs {
  /** [rows, 4] */
  entries: View;
  /** [slots, 4] in and out */
  state: View;
  /** First entry to compare, and number of entries. */
  first: number;
  n: number;
  /** False: hold the sequences whose sampled token differs from the guess. True: release all held sequences. */
  resume: boolean;
}

/** Records the comparison of sampled tokens with guesses, for entries first .. first + n - 1. */
export function acceptDraft(gpu: Gpu, { entries, state, first, n, resume }: AcceptDraftArgs): void {
  expectElements('accept_draft entries [rows, 4]', entries, (first + n) * 4);
  gpu.dispatch(acceptDraftKernel, { entries, state }, { first, n, resume: resume ? 1 : 0 }, groupsOf(n));
}
