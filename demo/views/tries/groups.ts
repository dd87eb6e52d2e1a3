/** Tries by problem, and what the model can learn from a group. */

import { short, signed } from '../../../src/ui/format.ts';
import type { LoggedRollout } from '../../../src/runs/rollouts.ts';
import { isJudged, isRight } from '../../state/tries/comparison.ts';

/** The tries at one problem. */
export interface Group {
  group: number;
  tries: LoggedRollout[];
}

const rightOf = ({ tries }: Group): number => tries.filter(isRight).length;

/** Returns the groups in the order of their numbers, whichever tries arrive first. */
export function groupsOf(tries: readonly LoggedRollout[]): Group[] {
  const byNumber = new Map<number, Group>();
  for (const one of tries) {
    const known = byNumber.get(one.group);
    if (known) known.tries.push(one);
    else byNumber.set(one.group, { group: one.group, tries: [one] });
  }
  return [...byNumber.values()].sort((a, b) => a.group - b.group);
}

/** True once the tries have advantages. */
export const isCompared = (tries: readonly LoggedRollout[]): boolean =>
  tries.some(({ advantage }) => advantage !== null);

/** Returns the group whose tries differ the most, because GRPO learns from differences. */
export function mostTelling(groups: readonly Group[]): Group {
  const spread = ({ tries }: Group) => {
    const scores = tries.flatMap(({ score }) => score ?? []);
    return scores.length > 0 ? Math.max(...scores) - Math.min(...scores) : 0;
  };
  const uneven = (group: Group) => Math.abs(rightOf(group) / group.tries.length - 0.5);
  const order = groups.map((group) => ({ group, spread: spread(group), uneven: uneven(group) }));
  order.sort((a, b) => b.spread - a.spread || a.uneven - b.uneven);
  return order[0].group;
}

/** Tries by descending reward; tries without a reward are last. */
export function bestFirst({ tries }: Group): LoggedRollout[] {
  const of = ({ score }: LoggedRollout) => score ?? -Number.MAX_VALUE;
  return [...tries].sort((a, b) => of(b) - of(a));
}

const mean = (values: readonly number[]) => values.reduce((a, b) => a + b, 0) / values.length;

/** Advantages of at most this absolute value are rounding errors. */
const isNothing = (advantage: number) => Math.abs(advantage) < 1e-9;

/**
 * Returns one sentence: what the update can learn from the difference between these tries. If only some tries of the group were logged, a
 * sentence before it says so.
 * @param expected number of tries that the problem gets @param trains true if a run is active @param method name of the algorithm
 */
export function whatItTeaches(group: Group, expected: number, trains: boolean, method = 'GRPO'): string {
  if (!isCompared(group.tries)) return notCompared(group, expected, trains);
  const n = group.tries.length;
  return n < expected
    ? `${n} of ${expected} tries were logged. ${compared(group, method, 'logged ')}`
    : compared(group, method);
}

function compared({ tries }: Group, method: string, logged = ''): string {
  const n = tries.length;
  const scores = tries.flatMap(({ score }) => score ?? []);
  const advantages = tries.map(({ advantage }) => advantage ?? 0);
  if (scores.length === 0) return `No ${logged}try has a reward${logged ? '' : ', so the update skips this group'}.`;
  if (scores.every((score) => score === scores[0])) {
    const who = n === 1 ? `The only ${logged}try` : n === 2 ? `Both ${logged}tries` : `All ${n} ${logged}tries`;
    if (advantages.every(isNothing))
      return `${who} earned ${short(scores[0])}. ${method} compares the tries at a problem: equal rewards make none more likely, so the update skips them.`;
  } else if (advantages.every(isNothing))
    return `Rewards differ (${range(scores)}), but all advantages are 0: no gradient.`;
  const right = tries.filter(isRight);
  const wrong = tries.filter((one) => !isRight(one));
  const sorted = tries.every(isJudged) && [right, wrong].every((some) => some.length > 0);
  const split =
    right.every(({ advantage }) => (advantage ?? 0) > 0) && wrong.every(({ advantage }) => (advantage ?? 0) < 0);
  if (sorted && split) {
    const [up, down] = [right, wrong].map((some) => signed(mean(some.map(({ advantage }) => advantage ?? 0))));
    return `${method}: ${right.length} of ${n} ${logged}tries are correct. The update makes these more likely (advantage ${up}) and the others less likely (${down}).`;
  }
  const [up, down] = [advantages.filter((a) => a > 0), advantages.filter((a) => a < 0)];
  const size = (some: number[], most: (...of: number[]) => number) =>
    some.length > 0 ? ` (up to ${signed(most(...some))})` : '';
  return (
    `Rewards range from ${range(scores)}: ${up.length} more likely after the update${size(up, Math.max)}, ` +
    `${down.length} less likely${size(down, Math.min)}.`
  );
}

function notCompared({ tries }: Group, expected: number, trains: boolean): string {
  const n = tries.length;
  if (n < expected && (trains || tries[0].step === 0)) return `Scoring: ${n} of ${expected} tries.`;
  if (tries[0].step === 0)
    return `${n === 1 ? 'One try' : `${n} tries`} of the untrained model. A run compares the tries at each problem and makes the better ones more likely.`;
  if (!trains) return 'The run was stopped before these tries were compared.';
  return `${n === 1 ? 'The try is' : `All ${n} tries are`} scored. Their advantages are shown when the step ends.`;
}

const range = (values: readonly number[]) => `${short(Math.min(...values))} to ${short(Math.max(...values))}`;
