/** The interface of every subcommand. */

import type { FlagSpec, ParsedArgs } from './args.ts';

export interface Command {
  /** One line for the list of commands. */
  summary: string;
  /** Example lines of `webgrpo <command> --help`, without "webgrpo". */
  usage: string[];
  flags: Record<string, FlagSpec>;
  /** Printed below the usage. */
  details?: () => string;
  /** Resolves when done; to another exit code than 0 where the rest has been said already: 1 failed, STOPPED_EXIT_CODE. */
  run(args: ParsedArgs, io: Output): Promise<number | void>;
}

/** Standard output: text for people, or with --json one object and nothing else. */
export interface Output {
  json: boolean;
  /** The result for a program; printed only with --json. */
  result(value: unknown): void;
  /** The same for a person; printed only without --json. */
  text(text: string): void;
}

export const JSON_FLAG: Record<string, FlagSpec> = {
  json: { help: 'print one JSON object on standard output, and nothing else' },
};
