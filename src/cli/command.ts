/** The interface of every subcommand. */

import type { FlagSpec, ParsedArgs } from './args.ts';

export interface Command {
  /** One line that describes the command in the list of `webgrpo help`. */
  summary: string;
  /** Example command lines for `webgrpo <command> --help`, without "webgrpo". */
  usage: string[];
  flags: Record<string, FlagSpec>;
  /** Text that --help prints below the usage. */
  details?: () => string;
  /**
   * Runs the command. Resolves to an exit code other than 0 if a failure was already reported: 1 = failed, STOPPED_EXIT_CODE = stopped by a
   * signal.
   */
  run(args: ParsedArgs, io: Output): Promise<number | void>;
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
