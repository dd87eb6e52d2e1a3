/**
 * Runs every command in the process of the caller. Prints the result on standard output (with --json exactly one JSON object) and the
 * progress on standard error. Exit codes: 0 = done, 1 = the run failed, 2 = bad input, 3 = stopped by a signal and saved. If a signal ended
 * the process immediately, a shell reports 128 + the signal's number.
 */

import { version } from '../../package.json';
import '../engineParts.ts';
import '../trainerParts.ts';
import {
  describe,
  DeviceLostError,
  FolderGoneError,
  InputError,
  isA,
  NoAdapterError,
  NotFiniteError,
  oneLine,
  OutOfMemoryError,
  stackOf,
  StoppedError,
} from '../errors.ts';
import { nearestKey } from '../grpo/config/resolve.ts';
import { readArgs } from './args.ts';
import { STOPPED_EXIT_CODE } from './process/interrupt.ts';
import { currentIo, type Io, processIo, withIo } from './process/io.ts';
import { closeMcpServers } from './run/mcpServers.ts';
import { commandsMarkdown, helpText, overviewText } from './commandDocs.ts';
import { importModules } from './importModule.ts';
import { type Command, type Output, refuseUnread } from './command.ts';
import { compare } from './commands/compare.ts';
import { config } from './commands/config.ts';
import { doctor } from './commands/doctor.ts';
import { evaluate } from './commands/eval.ts';
import { exportRun } from './commands/export.ts';
import { generate } from './commands/generate.ts';
import { init } from './commands/init.ts';
import { join } from './commands/join.ts';
import { merge } from './commands/merge.ts';
import { profile } from './commands/profile.ts';
import { replay } from './commands/replay.ts';
import { report } from './commands/report.ts';
import { room } from './commands/room.ts';
import { score } from './commands/score.ts';
import { serve } from './commands/serve.ts';
import { simulateRun } from './commands/simulate.ts';
import { sft } from './commands/sft.ts';
import { train } from './commands/train.ts';
import { tune } from './commands/tune.ts';
import { verify } from './commands/verify.ts';

const COMMANDS: Record<string, Command> = {
  train,
  serve,
  room,
  join,
  simulate: simulateRun,
  compare,
  sft,
  eval: evaluate,
  generate,
  merge,
  score,
  export: exportRun,
  init,
  verify,
  tune,
  config,
  report,
  doctor,
  profile,
  replay,
};

/** Runs one command line and returns its exit code. */
export function main(argv: readonly string[], io: Io = processIo): Promise<number> {
  return withIo(io, () => run(argv, io));
}

async function run(argv: readonly string[], io: Io): Promise<number> {
  try {
    return await dispatch(argv, io.stdout);
  } catch (error) {
    io.stderr.write(`${wordsOf(error)}\n`);
    return isBadInput(error) ? 2 : error instanceof StoppedError ? STOPPED_EXIT_CODE : 1;
  } finally {
    await closeMcpServers();
  }
}

async function dispatch([name, ...rest]: readonly string[], stdout: Io['stdout']): Promise<number> {
  if (name === undefined || ['help', '--help', '-h'].includes(name)) {
    const [asked] = rest;
    if (asked === '--markdown') stdout.write(commandsMarkdown(COMMANDS));
    else stdout.write(asked === undefined ? overviewText(COMMANDS, version) : helpText(asked, commandOf(asked)));
    return 0;
  }
  if (name === '--version' || name === '-V') {
    stdout.write(`${version}\n`);
    return 0;
  }
  const command = commandOf(name);
  const help = { help: { help: 'this text' } };
  const args = readArgs(rest, { ...command.flags, ...help });
  if (args.flags['help']) {
    stdout.write(helpText(name, command));
    return 0;
  }
  refuseUnread(name, command, args);
  await importModules(args.lists?.['import'] ?? []);
  return (await command.run(args, outputOf(args.flags['json'] === true))) ?? 0;
}

/** Returns the command with this name. Throws InputError that suggests the most similar name. */
function commandOf(name: string): Command {
  if (Object.hasOwn(COMMANDS, name)) return COMMANDS[name];
  throw new InputError(
    `Unknown command "${name}". Did you mean "${nearestKey(name, Object.keys(COMMANDS))}"? See --help.`,
  );
}

function outputOf(json: boolean): Output {
  const print = (text: string) => void currentIo().stdout.write(`${text}\n`);
  return {
    json,
    result: (value) => json && print(JSON.stringify(value, nullForNonFinite)),
    text: (text) => !json && print(text),
  };
}

/** Replaces NaN and Infinity, which JSON does not have, by null. */
const nullForNonFinite = (_key: string, value: unknown) =>
  typeof value === 'number' && !Number.isFinite(value) ? null : value;

const isBadInput = (error: unknown): boolean => isA(error, InputError) || isA(error, OutOfMemoryError);

const SENTENCES = [NoAdapterError, DeviceLostError, FolderGoneError, NotFiniteError, StoppedError];
const isForTheUser = (error: unknown): boolean =>
  isBadInput(error) || SENTENCES.some((kind) => isA<unknown>(error, kind));

/** Returns the message of an error that a user can correct. For any other error, a bug of this program, returns the stack trace. */
function wordsOf(error: unknown): string {
  if (isForTheUser(error)) return oneLine(describe(error));
  const bug = `This is a bug in webgrpo ${version}: please report it with the lines above and the command.`;
  return `${stackOf(error) ?? describe(error)}\n${bug}`;
}
