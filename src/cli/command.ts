/** The interface of every subcommand. */

import { InputError } from '../errors.ts';
import type { FlagSpec, ParsedArgs } from './args.ts';

export interface Command {
  /** One line that describes the command in the list of `webgrpo help`. */
  summary: string;
  /** Example command lines for `webgrpo <command> --help`, without "webgrpo". */
  usage: string[];
  flags: Record<string, FlagSpec>;
  /**
   * Arguments that `run` reads besides flags: 'settings' such as seed=2, and 'words' such as a file name. `refuseUnread` refuses others.
   */
  reads: readonly ('words' | 'settings')[];
  /** Text that --help prints below the usage. */
  details?: () => string;
  /**
   * Runs the command. Resolves to an exit code other than 0 if a failure was already reported: 1 = failed, STOPPED_EXIT_CODE = stopped by a
   * signal.
   */
  run(args: ParsedArgs, io: Output): Promise<number | void>;
}

/** Throws InputError for a word or setting that the command would ignore. */
export function refuseUnread(
  name: string,
  { reads }: Pick<Command, 'reads'>,
  { positionals: [word], overrides: [setting] }: ParsedArgs,
): void {
  const help = `"webgrpo help ${name}" lists the flags.`;
  if (word !== undefined && !reads.includes('words'))
    throw new InputError(`${name} reads only flags, but got "${word}". Quote a text of several words; ${help}`);
  if (setting !== undefined && !reads.includes('settings'))
    throw new InputError(`${name} reads no settings, but got "${setting}". Leave it out; ${help}`);
}

/** Standard output of a command: text for people, or with --json exactly one JSON object. */
export interface Output {
  json: boolean;
  /** Prints the result as JSON; does nothing without --json. */
  result(value: unknown): void;
  /** Prints text for people; does nothing with --json. */
  text(text: string): void;
}

export const JSON_FLAG: Record<string, FlagSpec> = {
  json: { help: 'print one JSON object on standard output, and nothing else' },
};
