/** Splits the problems of a generated task into training and held-out problems, disjoint by a hash of the problem's key. */

import { InputError } from '../../errors.ts';
import { hash, keyedRng, type Rng } from '../../tasks/random.ts';
import type { Problem } from '../../tasks/task.ts';

/** One problem in eight is held out. */
const HELD_OUT_SHARE = 8;
const MAX_DRAWS = 2000;

interface Drawn<P extends Problem> {
  problem: Omit<P, 'id'>;
  /** Key that identifies a problem. Problems with the same key count as the same problem. */
  key: string;
}

/**
 * Splits the problems of a generator into two sets. `draw` creates a problem for either set. `train` is endless, and depends only on index
 * and seed. `heldOut` returns the same distinct problems for every seed, and throws InputError if the generator has too few of them.
 */
export function splitTask<P extends Problem>(name: string, draw: (rng: Rng, heldOut: boolean) => Drawn<P>) {
  const isHeldOut = (key: string) => hash(name, key) % HELD_OUT_SHARE === 0;
  const drawFrom = (rng: Rng, heldOut: boolean): Drawn<P> => {
    for (let tries = 0; tries < MAX_DRAWS; tries++) {
      const drawn = draw(rng, heldOut);
      if (isHeldOut(drawn.key) === heldOut) return drawn;
    }
    throw new InputError(
      `Task "${name}" has too few problems to hold some out. Change its options so that it has more.`,
    );
  };
  return {
    isHeldOut,
    train: (index: number, seed: number): P =>
      ({ id: `train-${index}`, ...drawFrom(keyedRng(`${name}-train`, seed, index), false).problem }) as P,
    heldOut: (count: number): P[] => {
      const rng = keyedRng(`${name}-held-out`);
      const seen = new Set<string>();
      return Array.from({ length: count }, (_, index) => {
        for (let tries = 0; tries < MAX_DRAWS; tries++) {
          const { problem, key } = drawFrom(rng, true);
          if (seen.has(key)) continue;
          seen.add(key);
          return { id: `held-out-${index}`, ...problem } as P;
        }
        throw new InputError(
          `${count} held-out problems were requested, but task "${name}" has only ${index}. Ask for fewer.`,
        );
      });
    },
  };
}
