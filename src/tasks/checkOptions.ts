/** A task's options as a config writes them, and the ranges of its numbers: one outside of them would draw problems for ever, or none. */

import { InputError } from '../errors.ts';

/**
 * Throws InputError for a number outside its range, for one that is not whole where its end of the range is, and for a pair
 * `minX`, `maxX` the wrong way round.
 */
export function checkOptions(task: string, options: object, ranges: Record<string, [min: number, max: number]>): void {
  const values = options as Record<string, unknown>;
  for (const [name, [min, max]] of Object.entries(ranges)) {
    const value = values[name] as number;
    if (!(value >= min && value <= max) || (isCount(name) && !Number.isInteger(value)))
      throw new InputError(
        `${task}: option ${name} is ${value}; allowed: ${isCount(name) ? 'integers' : 'numbers'} from ${min} to ${max}.`,
      );
    const upper = name.replace(/^min/, 'max');
    if (upper !== name && value > (values[upper] as number))
      throw new InputError(`${task}: option ${name} is ${value}, above ${upper}, ${String(values[upper])}; swap them.`);
  }
}

/** Seconds may be broken. */
const isCount = (name: string): boolean => !/S$/.test(name);

/** The options as written. Throws InputError for one that the task does not have, or of another type than its default. */
export function readOptions<T extends object>(
  options: Readonly<Record<string, string | number | boolean>>,
  defaults: T,
): Partial<T> {
  for (const [key, value] of Object.entries(options)) {
    if (!Object.hasOwn(defaults, key))
      throw new InputError(`task.options.${key} is unknown; known: ${Object.keys(defaults).join(', ')}.`);
    const type = typeof defaults[key as keyof T];
    if (typeof value !== type)
      throw new InputError(`task.options.${key} is ${JSON.stringify(value)}; allowed: a ${type}.`);
  }
  return options as Partial<T>;
}
