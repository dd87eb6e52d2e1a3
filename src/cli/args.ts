/** Parses the command line: flags, and overrides such as `actor.optim.lr=1e-4`. */

import { distance } from 'fastest-levenshtein';
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { parseArgs } from 'node:util';
import { InputError } from '../errors.ts';

export interface FlagSpec {
  /** Placeholder of the flag's value in --help. A flag without a placeholder takes no value. */
  value?: string;
  /** True if the flag can be given several times. Its values are then in `ParsedArgs.lists`. */
  repeatable?: true;
  help: string;
}

export interface ParsedArgs {
  /** Arguments that are neither flags nor overrides, mostly file names. */
  positionals: string[];
  overrides: string[];
  flags: Record<string, string | boolean | undefined>;
  /** Values of repeatable flags, in the order of the command line. */
  lists?: Record<string, string[]>;
}

/** Parses the arguments of one command. Throws InputError for an unknown flag or a missing value. */
export function readArgs(args: readonly string[], specs: Record<string, FlagSpec>): ParsedArgs {
  const options = Object.fromEntries(
    Object.entries(specs).map(([name, { value, repeatable = false }]) => [
      name,
      { type: value ? ('string' as const) : ('boolean' as const), multiple: repeatable },
    ]),
  );
  const { values, positionals } = parse(args.map(withHome), options);
  const isOverride = (word: string) => /^[\w.]+=/.test(word);
  const flags: ParsedArgs['flags'] = {};
  const lists: Record<string, string[]> = {};
  for (const [name, value] of Object.entries(values)) {
    if (Array.isArray(value)) lists[name] = value.map(String);
    else flags[name] = value;
  }
  return {
    positionals: positionals.filter((word) => !isOverride(word)),
    overrides: positionals.filter(isOverride),
    flags,
    lists,
  };
}

/** Replaces "~" after "=" by the home folder. A shell replaces only a "~" with which a word begins. */
const withHome = (word: string): string =>
  word.replace(/^(--[\w-]+=|[\w.]+=)~(?=[\\/]|$)/, (_, key: string) => key + homedir());

function parse(args: readonly string[], options: Record<string, { type: 'string' | 'boolean'; multiple: boolean }>) {
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true, strict: true });
  } catch (error) {
    const known = Object.keys(options).map((name) => `--${name}`);
    const [reason] = (error as Error).message.split('. ');
    const [, setting] = /^Unknown option '-{1,2}([a-z]\w*(?:\.\w+)+)/.exec(reason) ?? [];
    if (setting !== undefined)
      throw new InputError(
        `${setting} is written like an option, but is a setting. Write ${setting}=VALUE, without dashes.`,
      );
    const [mistyped] = /(?<=Unknown option ')--[^']+/.exec(reason) ?? [];
    const meant = mistyped === undefined ? undefined : nearestOption(mistyped, known);
    const hint = meant === undefined ? '' : ` Did you mean ${meant}?`;
    throw new InputError(`${reason.replace(/\.$/, '')}.${hint} Known options: ${known.join(', ')}.`);
  }
}

/** Returns the known option with the smallest edit distance from a mistyped one; undefined if over half of its letters would change. */
function nearestOption(mistyped: string, known: readonly string[]): string | undefined {
  const letters = (option: string) => option.replace(/^--/, '').toLowerCase();
  const cost = (option: string) => distance(letters(mistyped), letters(option)) / letters(option).length;
  const nearest = known.reduce((best, option) => (cost(option) < cost(best) ? option : best));
  return cost(nearest) <= 0.5 ? nearest : undefined;
}

/** Returns the number of a flag. Throws InputError if it is outside [min, max]. */
export function numberFlag(flags: ParsedArgs['flags'], name: string, byDefault: number, [min, max]: [number, number]) {
  const text = flags[name];
  if (text === undefined) return byDefault;
  const value = Number(text);
  if (typeof text === 'string' && text.trim() !== '' && value >= min && value <= max) return value;
  throw new InputError(`--${name} is "${String(text)}"; allowed: a number from ${min} to ${max}. Change it.`);
}

/** Throws InputError if one of these flags is given. `reason` says when the flag has no effect. */
export function refuseFlags(flags: ParsedArgs['flags'], names: readonly string[], reason: string): void {
  const given = names.find((name) => flags[name] !== undefined);
  if (given !== undefined) throw new InputError(`--${given} has no effect ${reason}. Leave it out.`);
}

/** Matches a setting that was not written as key=value: "a.b", "a.b:1", and "+a.b=1" of Hydra. */
const SETTING = /^(?:\+\+?|~)?([a-z]\w*(?:\.\w+)+)[:=]?(.*)$/s;

const isSetting = (word: string): boolean =>
  SETTING.exec(word)?.[2].includes('/') === false &&
  !/\.(ya?ml|jsonl?|csv|tsv|txt|md|html|m?[jt]s|gguf|safetensors|parquet)$/i.test(word) &&
  !existsSync(word);

/** Returns the only file name of a command. Throws InputError if there is not exactly one. */
export function oneFile(positionals: readonly string[], what: string): string {
  if (positionals.length === 1) return positionals[0];
  const setting = positionals.find(isSetting);
  if (setting !== undefined) {
    const [, key, value] = SETTING.exec(setting)!;
    const given = value ? `is "${setting}"` : 'has no value';
    throw new InputError(`The setting ${key} ${given}. Write ${key}=${value || 'VALUE'}, without spaces.`);
  }
  if (positionals.length === 0)
    throw new InputError(`No ${what} was given. Give its file name. --help shows an example.`);
  throw new InputError(
    `One ${what} is expected, but there are ${positionals.length}: ${positionals.join(', ')}. Leave the others out.`,
  );
}
