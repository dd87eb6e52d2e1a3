/** Exercises of lesson 2. */

import type { RuleLosses, RuleTokens } from '../../../src/extensions/modules/index.ts';
import { computePolicyLoss } from '../../../src/grpo/losses/index.ts';
import { short } from '../../../src/ui/format.ts';
import type { CodeExercise, Exercise, TickExercise } from '../kit/checks.ts';
import { ratioCurve, settingOf } from './losses.ts';

const CLIP = { clipRatioLow: 0.2, clipRatioHigh: 0.28, clipRatioC: 3 };

/**
 * Ratios and advantages at which a reader's loss is evaluated: first cases that reveal the known mistakes, then the grid of
 * `checkPolicyLoss`.
 */
const CASES = [
  ...[0.5, 1, 2].flatMap((ratio) => [1, -1].map((advantage) => ({ ratio, advantage }))),
  ...[-2.3, -0.71, -0.24, -0.11, -0.0037, 0.00071, 0.052, 0.13, 0.31, 0.93, 1.9].flatMap((log) =>
    [-1.7, -0.4, 0.6, 2.1].map((advantage) => ({ ratio: Math.exp(log), advantage })),
  ),
];

const OLD = Math.log(0.1);

const TOKENS: RuleTokens = {
  advantages: CASES.map(({ advantage }) => advantage),
  logProbs: CASES.map(({ ratio }) => OLD + Math.log(ratio)),
  oldLogProbs: CASES.map(() => OLD),
  entropies: CASES.map(() => 1),
  clipLow: CLIP.clipRatioLow,
  clipHigh: CLIP.clipRatioHigh,
};

/** Returns the library's values and slopes of a loss for all `CASES`. */
function libraryLosses(name: string): Pick<RuleLosses, 'losses' | 'grads'> {
  // The dual clip is off, because another exercise is about the dual clip.
  const { loss, spec } = settingOf(name, { ...CLIP, clipRatioC: 1e6 }, { wMax: 1 + CLIP.clipRatioHigh });
  const { advantages, logProbs: logp, oldLogProbs: oldLogp } = TOKENS;
  const seqStart = [...CASES.keys(), CASES.length];
  const rows = { logp, oldLogp, advantages, weights: CASES.map(() => 1), seqStart };
  const { perToken, grad } = computePolicyLoss(spec, rows, loss);
  return { losses: Array.from(perToken), grads: Array.from(grad) };
}

/** A slope that is computed from differences has an error of about 1e-8 for these values. */
const CLOSE = 1e-4;

const close = (a: number, b: number): boolean => Math.abs(a - b) <= CLOSE * Math.max(1, Math.abs(b));
const alike = (a: readonly number[], b: readonly number[]): boolean => a.every((value, e) => close(value, b[e]));

/** A known mistake: a function that returns true if the results of the reader's loss show the mistake, and a sentence about it. */
type Known = [(given: RuleLosses) => boolean, string];

/** Returns the sentence about the first known mistake that the results show, otherwise a sentence about the first case that differs. */
function judgeLoss(name: string, known: readonly Known[], [given]: readonly unknown[]): string | undefined {
  const [own, library] = [given as RuleLosses, libraryLosses(name)];
  if (alike(own.losses, library.losses) && alike(own.grads, library.grads)) return undefined;
  const mistake = known.find(([is]) => is(own));
  if (mistake) return mistake[1];
  const e = CASES.findIndex(
    (_, i) => !close(own.losses[i], library.losses[i]) || !close(own.grads[i], library.grads[i]),
  );
  const { ratio, advantage } = CASES[e];
  return (
    `At advantage ${short(advantage)} and ratio ${short(ratio)} your loss is ${short(own.losses[e])} with slope ${short(own.grads[e])}. ` +
    `The library has ${short(library.losses[e])} with slope ${short(library.grads[e])}.`
  );
}

const A = CASES.map(({ advantage }) => advantage);
const R = CASES.map(({ ratio }) => ratio);
const bounded = (ratio: number) => Math.min(Math.max(ratio, 1 - CLIP.clipRatioLow), 1 + CLIP.clipRatioHigh);

const LOSS_HELP = `// Called for every token. The update makes the loss smaller.
//   advantage   how much better the try was than its group
//   ratio       probability now / probability when it was sampled
//   clipLow, clipHigh     0.2 and 0.28`;

const ppo = (result: string) => `export function loss({ advantage, ratio, clipLow, clipHigh }) {
  const clipped = Math.min(Math.max(ratio, 1 - clipLow), 1 + clipHigh);
  return ${result};
}
`;

const PPO_WRONG = {
  min: 'You take the better of the two. PPO takes the worse, so that a token gains nothing by leaving the range.',
  clip: 'At advantage 1 and ratio 0.5 your loss lets the token go. PPO still pulls it back up, because it fell although the try was good.',
  sign: 'The sign is missing. The update makes a loss smaller, so this one pushes the right tries down.',
  dual: 'That has the dual clip, which lets a bad token go once it has risen very far. Exercise 2.2 is about it. Here leave it out.',
};

const PPO: CodeExercise = {
  kind: 'code',
  id: '2.1',
  title: "Write PPO's loss",
  task:
    'Return the loss of one token. Without a clip it is minus advantage times ratio. PPO also computes it with the ratio held between ' +
    '1 - clipLow and 1 + clipHigh, and takes the worse of the two. The check compares value and slope with the library.',
  name: 'loss',
  tokens: TOKENS,
  start: `${LOSS_HELP}
export function loss({ advantage, ratio, clipLow, clipHigh }) {
  return -advantage * ratio;
}
`,
  answer: ppo('Math.max(-advantage * ratio, -advantage * clipped)'),
  hint: 'Of two losses the worse one is the larger one. Both begin with minus advantage.',
  why: `Value and slope agree with the library at all ${CASES.length} tokens, from ratio 0.1 to 6.7.`,
  calls: [],
  judge: (results) =>
    judgeLoss(
      'vanilla',
      [
        [
          ({ losses }) =>
            alike(
              losses,
              A.map((a, e) => Math.max(a * R[e], a * bounded(R[e]))),
            ),
          PPO_WRONG.sign,
        ],
        [
          ({ losses }) =>
            alike(
              losses,
              A.map((a, e) => Math.min(a * R[e], a * bounded(R[e]))),
            ),
          PPO_WRONG.sign,
        ],
        [
          ({ losses }) =>
            alike(
              losses,
              A.map((a, e) => Math.min(-a * R[e], -a * bounded(R[e]))),
            ),
          PPO_WRONG.min,
        ],
        [
          ({ losses }) =>
            alike(
              losses,
              A.map((a, e) => -a * bounded(R[e])),
            ),
          PPO_WRONG.clip,
        ],
        [
          ({ losses }) =>
            alike(
              losses,
              A.map((a, e) =>
                Math.min(Math.max(-a * R[e], -a * bounded(R[e])), a < 0 ? -a * CLIP.clipRatioC : Infinity),
              ),
            ),
          PPO_WRONG.dual,
        ],
      ],
      results,
    ),
  wrong: [
    { given: ppo('Math.min(-advantage * ratio, -advantage * clipped)'), says: PPO_WRONG.min },
    { given: ppo('-advantage * clipped'), says: PPO_WRONG.clip },
    { given: ppo('Math.max(advantage * ratio, advantage * clipped)'), says: PPO_WRONG.sign },
  ],
};

/** Tokens of the exercise, by the letter of their checkbox. */
const TICKED: Record<string, { advantage: number; ratio: number }> = {
  a: { advantage: 1, ratio: 0.5 },
  b: { advantage: 1, ratio: 0.79 },
  c: { advantage: 1, ratio: 1.1 },
  d: { advantage: 1, ratio: 1.3 },
  e: { advantage: 1, ratio: 2 },
  f: { advantage: -1, ratio: 0.5 },
  g: { advantage: -1, ratio: 0.79 },
  h: { advantage: -1, ratio: 0.9 },
  i: { advantage: -1, ratio: 2 },
  j: { advantage: -1, ratio: 3.5 },
};

const idsWhere = (is: (one: { advantage: number; ratio: number }) => boolean): string[] =>
  Object.keys(TICKED).filter((id) => is(TICKED[id]));

const HELD = idsWhere(
  ({ advantage, ratio }) => ratioCurve('vanilla', { ratios: [ratio], advantage, clip: CLIP }).held[0] === 1,
);
const isOutside = (ratio: number) => bounded(ratio) !== ratio;
const OUTSIDE = idsWhere(({ ratio }) => isOutside(ratio));
const SWAPPED = idsWhere(({ advantage, ratio }) =>
  advantage > 0 ? ratio < 1 - CLIP.clipRatioLow : ratio > 1 + CLIP.clipRatioHigh,
);

const same = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((id) => b.includes(id));

const HELD_WRONG = [
  {
    given: OUTSIDE,
    says: 'You ticked all tokens outside the range. A good token that fell and a bad token that rose are pulled back: the clip holds one side only.',
  },
  {
    given: SWAPPED,
    says: 'You swapped the sides. A good token is let go when it has risen, and a bad one when it has fallen.',
  },
  {
    given: HELD.filter((id) => id !== 'j'),
    says: 'One is missing: advantage -1, ratio 3.5. Beyond c = 3 the dual clip lets a bad token go as well.',
  },
];

const TICK: TickExercise = {
  kind: 'ticks',
  id: '2.2',
  title: 'Find the tokens without pull',
  task: 'Tick every token that PPO does not pull at all. The clip is 0.2 below and 0.28 above, and the dual clip is c = 3.',
  options: Object.entries(TICKED).map(([id, { advantage, ratio }]) => ({
    id,
    label: `advantage ${advantage > 0 ? '+1' : '-1'}, ratio ${ratio}`,
  })),
  answer: HELD,
  hint: 'Ask of each token: did it already move the way that its advantage pushes, by more than the clip?',
  why: 'The clip lets go of a token that has moved far enough the right way. The dual clip lets go of a bad token that rose very far.',
  judge: (ticked) => {
    if (same(ticked, HELD)) return undefined;
    const known = HELD_WRONG.find(({ given }) => same(given, ticked));
    if (known) return known.says;
    const id = Object.keys(TICKED).find((one) => ticked.includes(one) !== HELD.includes(one))!;
    const { advantage, ratio } = TICKED[id];
    const where = `Advantage ${advantage > 0 ? '+1' : '-1'}, ratio ${ratio}`;
    return HELD.includes(id)
      ? `${where} is missing. Look it up in figure 2.1.`
      : `${where} is ticked, and it is still pulled. Look it up in figure 2.1.`;
  },
  wrong: HELD_WRONG,
};

const cispo = (result: string) => `export function loss({ advantage, ratio, logProb, clipLow, clipHigh }) {
  const weight = Math.min(Math.max(ratio, 1 - clipLow), 1 + clipHigh);
  return ${result};
}
`;

const CISPO_WRONG = {
  number:
    'You returned a number, so its slope was taken, and that runs through the weight as well. CISPO holds the weight constant: return { loss, grad }.',
  twice:
    'Your slope has the ratio twice. The weight is the ratio already, so the slope is minus weight times advantage.',
  zero: 'Outside the range your slope is 0. That is PPO. CISPO bounds the weight, and every token keeps a pull.',
};

const inside = (of: (e: number) => number) => (grads: readonly number[]) =>
  CASES.every((_, e) => isOutside(R[e]) || close(grads[e], of(e)));
const outside = (of: (e: number) => number) => (grads: readonly number[]) =>
  CASES.every((_, e) => !isOutside(R[e]) || close(grads[e], of(e)));
const slope = (e: number) => -bounded(R[e]) * A[e];

const CISPO: CodeExercise = {
  kind: 'code',
  id: '2.3',
  title: 'Write CISPO',
  task:
    'The weight of a token is its ratio, held between 1 - clipLow and 1 + clipHigh. The loss is minus weight times advantage times logProb. ' +
    'The weight counts as a constant. So return { loss, grad }, where grad is the slope by logProb.',
  name: 'loss',
  tokens: TOKENS,
  start: `${LOSS_HELP}
//   logProb     logarithm of the probability now
// Return { loss, grad }, with grad = d loss / d logProb.
export function loss({ advantage, ratio, logProb, clipLow, clipHigh }) {
  const weight = ratio;
  return { loss: -weight * advantage * logProb, grad: 0 };
}
`,
  answer: cispo('{ loss: -weight * advantage * logProb, grad: -weight * advantage }'),
  hint: 'If weight and advantage are constants, what is the slope of minus weight times advantage times logProb?',
  why: 'Every token keeps a pull, and no ratio makes it larger than the bound.',
  calls: [],
  judge: (results) =>
    judgeLoss(
      'cispo',
      [
        [
          ({ grads }) => inside((e) => -A[e] * R[e] * (1 + TOKENS.logProbs[e]))(grads) && outside(slope)(grads),
          CISPO_WRONG.number,
        ],
        [
          ({ grads }) =>
            alike(
              grads,
              A.map((_, e) => slope(e) * R[e]),
            ),
          CISPO_WRONG.twice,
        ],
        [({ grads }) => inside(slope)(grads) && outside(() => 0)(grads), CISPO_WRONG.zero],
      ],
      results,
    ),
  wrong: [
    { given: cispo('-weight * advantage * logProb'), says: CISPO_WRONG.number },
    {
      given: cispo('{ loss: -weight * advantage * logProb, grad: -weight * advantage * ratio }'),
      says: CISPO_WRONG.twice,
    },
    {
      given: cispo('{ loss: -weight * advantage * logProb, grad: weight === ratio ? -weight * advantage : 0 }'),
      says: CISPO_WRONG.zero,
    },
  ],
};

export const EXERCISES: readonly Exercise[] = [PPO, TICK, CISPO];
