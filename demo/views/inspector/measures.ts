/** The numbers that tokens can be coloured by: the value of each token, its position on the colour scale, and the meaning of the scale. */

import { plural, short, signed } from '../../../src/ui/format.ts';
import type { TryTokens } from '../../training/tokens.ts';

export const MEASURES = ['probability', 'advantage', 'ratio', 'entropy', 'clip', 'gradient'] as const;
export type Measure = (typeof MEASURES)[number];

/** A token with its numbers; undefined = unknown. */
export interface TokenView {
  id: number;
  text: string;
  /** False if a tool or the template wrote the token. */
  drawn: boolean;
  /** False if the update did not use the token. */
  trained: boolean;
  /** Probability of the token when it was sampled, 0 to 1. */
  probability?: number;
  advantage?: number;
  ratio?: number;
  entropy?: number;
  /** 1 = the clip stopped the token's probability from rising, -1 = from falling, 0 = not clipped. */
  clip?: number;
  /** How strongly the update changed the token's log-probability: -d loss / d logp. */
  gradient?: number;
  /** Step of the weights that sampled the token. */
  version?: number;
}

/** Returns the tokens of a try with their numbers. */
export function tokenViews({ sample, s, step }: TryTokens): TokenView[] {
  const { responseIds, mask, logProbs, weightVersions } = sample.trajectory;
  const { numbers, advantages } = step;
  return Array.from(responseIds, (id, t): TokenView => {
    const drawn = mask[t] === 1;
    const trained = numbers?.trained[s][t] === 1;
    return {
      id,
      text: step.engine.tokenizer.decode([id]),
      drawn,
      trained,
      ...(drawn && {
        probability: Math.exp(logProbs[t]),
        advantage: advantages[s][t],
        ...(weightVersions && { version: weightVersions[t] }),
      }),
      ...(trained && {
        ratio: numbers.ratio[s][t],
        entropy: numbers.entropy[s][t],
        clip: numbers.clipped[s][t] === 0 ? 0 : Math.sign(numbers.advantage[s][t]),
        gradient: -numbers.grad[s][t],
      }),
    };
  });
}

/** Returns a sentence about the update of all tokens in the try's group. */
export function updateOfGroup({ sample, step: { samples, numbers } }: TryTokens): string {
  if (!numbers)
    return 'Ratio, entropy, clip and gradient of this step are no longer available. Open a try before the next step ends.';
  let [trained, held] = [0, 0];
  for (const [s, { group }] of samples.entries()) {
    if (group !== sample.group) continue;
    numbers.trained[s].forEach((of) => (trained += of));
    numbers.clipped[s].forEach((bits) => (held += bits === 0 ? 0 : 1));
  }
  if (trained === 0) return 'The update skipped this group: its tries have no advantage, so no gradient.';
  return `The update used ${plural(trained, 'token')} of this group, ${held === 0 ? 'none' : held} of them clipped.`;
}

/**
 * Returns each token's position on the colour scale: -1 to 1, negative below the middle of a scale that has a middle; undefined = no value.
 */
export function places(measure: Measure, tokens: readonly TokenView[]): (number | undefined)[] {
  const values = tokens.map((token) => token[measure]);
  const place = PLACES[measure](endOf(measure, tokens));
  return values.map((value) => (value === undefined ? undefined : Math.max(-1, Math.min(1, place(value)))));
}

/** Returns the value that gets the full colour: the largest of these tokens, but at least LEAST. */
export function endOf(measure: Measure, tokens: readonly TokenView[]): number {
  const size = SIZES[measure];
  const values = tokens.flatMap((token) => token[measure] ?? []);
  return values.reduce((most, value) => Math.max(most, size(value)), LEAST[measure]);
}

/** Probability at which a token has the full colour. Unlikely tokens should stand out. */
const UNLIKELY = 0.01;

const PLACES: Record<Measure, (end: number) => (value: number) => number> = {
  probability: () => (p) => Math.log(Math.max(p, UNLIKELY)) / Math.log(UNLIKELY),
  advantage: (end) => (value) => value / end,
  ratio: (end) => (value) => Math.log(value) / Math.log(end),
  entropy: (end) => (value) => value / end,
  clip: () => (held) => held,
  gradient: (end) => (value) => value / end,
};

const SIZES: Record<Measure, (value: number) => number> = {
  probability: () => UNLIKELY,
  advantage: Math.abs,
  ratio: (value) => Math.exp(Math.abs(Math.log(value))),
  entropy: (value) => value,
  clip: () => 1,
  gradient: Math.abs,
};

/** Lowest value for the end of each colour scale. Otherwise rounding errors would get the full colour. */
const LEAST: Record<Measure, number> = {
  probability: UNLIKELY,
  advantage: 0.1,
  ratio: 1.05,
  entropy: 1,
  clip: 1,
  gradient: 1e-9,
};

interface Legend {
  means: string;
  /** Texts at the ends of the colour scale, and at its middle if it has one. */
  low: string;
  middle?: string;
  high: string;
}

/** Returns the legend of a measure's colour scale. */
export function legendOf(measure: Measure, tokens: readonly TokenView[]): Legend {
  const end = endOf(measure, tokens);
  const legends: Record<Measure, Legend> = {
    probability: {
      means: 'Probability of the token when it was sampled. Colour marks unlikely tokens.',
      low: '1',
      high: `${short(UNLIKELY)} or less`,
    },
    advantage: {
      means: 'How much better the try was than its group. Above 0, its tokens become more likely.',
      low: signed(-end),
      middle: '0',
      high: signed(end),
    },
    ratio: {
      means:
        'Probability in the update, divided by the probability at sampling. 1: not yet changed by earlier updates of the step.',
      low: short(1 / end),
      middle: '1',
      high: short(end),
    },
    entropy: {
      means: 'Entropy of the next-token distribution, in nats. 0: only one token was possible.',
      low: '0',
      high: short(end),
    },
    clip: {
      means: 'Whether the clip stopped the update of this token because its ratio had reached the limit.',
      low: 'clipped, falling',
      middle: 'not clipped',
      high: 'clipped, rising',
    },
    gradient: {
      means: "Gradient of the token's log-probability: size and direction of the update.",
      low: `${signed(-end)} less likely`,
      middle: '0',
      high: `${signed(end)} more likely`,
    },
  };
  return legends[measure];
}

export const NAMES: Record<Measure, string> = {
  probability: 'Probability',
  advantage: 'Advantage',
  ratio: 'Ratio',
  entropy: 'Entropy',
  clip: 'Clip',
  gradient: 'Gradient',
};

/** Returns the value of a measure as text. */
export function valueText(measure: Measure, token: TokenView): string {
  const value = token[measure];
  if (!token.drawn) return 'not written by the model';
  if (value === undefined) return 'not known';
  if (measure === 'clip') return value === 0 ? 'not clipped' : value > 0 ? 'clipped, rising' : 'clipped, falling';
  return measure === 'advantage' || measure === 'gradient' ? signed(value) : short(value);
}

/** Returns a token as it can be used in a sentence: blanks and line breaks are named. */
export function spoken({ text }: TokenView): string {
  if (text === '') return 'part of a character';
  const named = text.replaceAll('\n', ' line break');
  return named.trim() === '' ? 'blank' : named.trim();
}
