/**
 * Reads a task's options from a config and checks their ranges. A number out of range could make the task's generator of problems loop
 * forever.
 */

import { InputError } from '../../errors.ts';

/**
 * Throws InputError if a number is out of its range or not an integer (seconds, `...S`, may have a fraction), or if `minX` is above `maxX`.
 */
export function checkOptions(task: string, options: object, ranges: Record<string, [min: number, max: number]>): void {
  const values = options as Record<string, unknown>;
  for (const [name, [min, max]] of Object.entries(ranges)) {
    const value = values[name] as number;
    if (!(value >= min && value <= max) || (isCount(name) && !Number.isInteger(value)))
      throw new InputError(
        `${task}: option ${name} is ${value}; allowed: ${isCount(name) ? 'integers' : 'numbers'} from ${min} to ${max}. Change it, or leave it out.`,
      );
    const upper = name.replace(/^min/, 'max');
    if (upper !== name && value > (values[upper] as number))
      throw new InputError(`${task}: option ${name} is ${value}, above ${upper}, ${String(values[upper])}. Swap them.`);
  }
}

/** True unless the option's name ends in S: an option in seconds may have a fraction. */
const isCount = (name: string): boolean => !/S$/.test(name);

/** Returns the options that the config sets. Throws InputError if one is unknown or has another type than its default. */
export function readOptions<T extends object>(
  options: Readonly<Record<string, string | number | boolean>>,
  defaults: T,
): Partial<T> {
  for (const [key, value] of Object.entries(options)) {
    if (!Object.hasOwn(defaults, key))
      throw new InputError(
        `task.options.${key} is unknown; known: ${Object.keys(defaults).join(', ')}. Rename it, or leave it out.`,
      );
    const type = typeof defaults[key as keyof T];
    if (typeof value !== type)
      throw new InputError(
        `task.options.${key} is ${JSON.stringify(value)}; allowed: a ${type}. Change it, or leave it out.`,
      );
  }
  return options as Partial<T>;
}
