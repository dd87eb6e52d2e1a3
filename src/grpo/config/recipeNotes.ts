/** Notes that a run prints if its algorithm differs from the published method of that name. */

import { RECIPES, VERL_DEFAULTS } from './recipes.ts';
import { leaves, show, type Tree, valueAt } from './tree.ts';
import type { Recipe, TrainConfig } from './types.ts';

const recipes: Readonly<Record<string, Recipe>> = RECIPES;
/** Shorthands: keys that set other keys, and win over them. */
export const SHORTHANDS: readonly { key: string; sets: readonly string[]; as: (value: unknown) => unknown }[] = [
  { key: 'actor.clipRatio', sets: ['actor.clipRatioLow', 'actor.clipRatioHigh'], as: (clip) => clip },
  {
    key: 'algorithm.normAdvByStdInGrpo',
    sets: ['algorithm.scaleRewards'],
    as: (isByStd) => (isByStd ? 'group' : 'none'),
  },
];
const CLIP_KEYS = ['clipRatioLow', 'clipRatioHigh', 'clipRatioC'] as const;

/**
 * True for a key that some recipe sets, and for the numeric parameters of a loss. A file's value of such a key is meant for the algorithm
 * that the file names.
 */
export const isDecidedByRecipe = (path: string): boolean =>
  SHORTHANDS.some(({ key }) => key === path) ||
  path.startsWith('actor.policyLoss.') ||
  Object.values(recipes).some((recipe) => valueAt(recipe, path) !== undefined);

/**
 * Returns one line if a file names an algorithm and sets a key to a value other than its recipe's; undefined otherwise.
 * @param overridden keys set by overrides, whose values in the file do not count
 */
export function contradiction(file: Tree, source: string, overridden: readonly string[]): string | undefined {
  const name = valueAt(file, 'algorithm.name');
  if (typeof name !== 'string' || !Object.hasOwn(recipes, name)) return undefined;
  const implied = leaves(VERL_DEFAULTS).filter(([path]) => IMPLIED.includes(path));
  const byName = new Map([...implied, ...leaves(recipes[name])]);
  const differs = [...byName].flatMap(([path, value]) => {
    const own = valueAt(file, path) ?? valueOfShorthand(file, path);
    const counts = own !== undefined && own !== value && !overridden.includes(path);
    return counts ? [`${path} ${show(own)} (${name}: ${show(value)})`] : [];
  });
  if (differs.length === 0) return undefined;
  return `${source} names the algorithm ${name} but sets ${differs.join(', ')}; algorithm.name=${name} runs it as published.`;
}

/** Keys that every `algorithm.name` decides, even if its recipe does not set them. */
const IMPLIED = ['actor.policyLoss.lossMode', 'algorithm.advEstimator'];

function valueOfShorthand(file: Tree, path: string): unknown {
  const shorthand = SHORTHANDS.find(({ sets }) => sets.includes(path));
  const value = shorthand && valueAt(file, shorthand.key);
  return value === undefined ? undefined : shorthand?.as(value);
}

/**
 * Returns one line if the run's loss uses a clip range that was made for another loss; undefined otherwise.
 * @param overridden keys that the user set in addition to `algorithm.name`; a clip range among them is intended
 */
export function foreignClip({ actor, algorithm }: TrainConfig, overridden: readonly string[]): string | undefined {
  const lossMode = actor.policyLoss.lossMode;
  const clipIsMeant = overridden.some((path) => path.startsWith('actor.clipRatio') || path === 'actor.policyLoss.wMax');
  const lossOf = (recipe: Recipe | undefined) =>
    recipe?.actor?.policyLoss?.lossMode ?? VERL_DEFAULTS.actor.policyLoss.lossMode;
  if (clipIsMeant || lossOf(recipes[algorithm.name]) === lossMode) return undefined;
  const own = Object.hasOwn(recipes, lossMode)
    ? lossMode
    : Object.keys(recipes).find((name) => lossOf(recipes[name]) === lossMode);
  if (own === undefined) return undefined;
  const clips = [recipes[own].actor, recipes[algorithm.name]?.actor];
  if (!clips.some((clip) => CLIP_KEYS.some((key) => clip?.[key] !== undefined))) return undefined;
  const wanted = { ...VERL_DEFAULTS.actor, ...recipes[own].actor };
  if (CLIP_KEYS.every((key) => wanted[key] === actor[key])) return undefined;
  const range = (clip: Partial<Record<(typeof CLIP_KEYS)[number], number | undefined>>) =>
    CLIP_KEYS.map((key) => clip[key]).join(' / ');
  return (
    `actor.policyLoss.lossMode is ${lossMode}, but the clip (low / high / c) is ${range(actor)}, not its own ${range(wanted)}. ` +
    `Set algorithm.name=${own} for both.`
  );
}
