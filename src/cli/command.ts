/** The interface of every subcommand. */

import type { FlagSpec, ParsedArgs } from './args.ts';

export interface Command {
  /** One line for the list of commands. */
  summary: string;
  /** Example command lines for `webgrpo <command> --help`, without "webgrpo". */
  usage: string[];
  flags: Record<string, FlagSpec>;
  /** Printed below the usage. */
  details?: () => string;
  /** Runs the command. Resolves to an exit code other than 0 if the failure was already reported: 1 for failed, or STOPPED_EXIT_CODE. */
  run(args: ParsedArgs, io: Output): Promise<number | void>;
}

/** Standard output: text for people, or with --json one JSON object and nothing else. */
export interface Output {
  json: boolean;
  /** Prints the result for a program; only with --json. */
  result(value: unknown): void;
  /** Prints the result for people; only without --json. */
  text(text: string): void;
}

export const JSON_FLAG: Record<string, FlagSpec> = {
  json: { help: 'print one JSON object on standard output, and nothing else' },
};
