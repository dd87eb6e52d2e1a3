#!/usr/bin/env node
/**
 * The command line. Standard output: the result (with --json one JSON object, alone). Standard error: progress.
 * Exit codes: 0 done, 1 the run failed, 2 bad input.
 */

import { version } from '../../package.json';
import { DeviceLostError, InputError, NoAdapterError, OutOfMemoryError } from '../errors.ts';
import { nearestKey } from '../grpo/config/resolve.ts';
import { readArgs } from './args.ts';
import { importModules } from './importModule.ts';
import type { Command, Output } from './command.ts';
import { compare } from './commands/compare.ts';
import { config } from './commands/config.ts';
import { evaluate } from './commands/eval.ts';
import { exportRun } from './commands/export.ts';
import { generate } from './commands/generate.ts';
import { merge } from './commands/merge.ts';
import { profile } from './commands/profile.ts';
import { report } from './commands/report.ts';
import { score } from './commands/score.ts';
import { sft } from './commands/sft.ts';
import { train } from './commands/train.ts';
import { tune } from './commands/tune.ts';
import { verify } from './commands/verify.ts';

const COMMANDS: Record<string, Command> = {
  train,
  compare,
  sft,
  eval: evaluate,
  generate,
  merge,
  score,
  export: exportRun,
  verify,
  tune,
  config,
  report,
  profile,
};

/** Runs one command line and returns its exit code. */
export async function main(argv: readonly string[]): Promise<number> {
  try {
    return await dispatch(argv);
  } catch (error) {
    process.stderr.write(`${describe(error)}\n`);
    return isBadInput(error) ? 2 : 1;
  }
}

async function dispatch([name, ...rest]: readonly string[]): Promise<number> {
  if (name === undefined || ['help', '--help', '-h'].includes(name)) {
    process.stdout.write(rest.length > 0 ? helpOf(rest[0], commandOf(rest[0])) : overview());
    return 0;
  }
  if (name === '--version' || name === '-V') {
    process.stdout.write(`${version}\n`);
    return 0;
  }
  const command = commandOf(name);
  const help = { help: { help: 'this text' } };
  const args = readArgs(rest, { ...command.flags, ...help });
  if (args.flags['help']) {
    process.stdout.write(helpOf(name, command));
    return 0;
  }
  await importModules(args.lists?.['import'] ?? []);
  const ok = await command.run(args, outputOf(args.flags['json'] === true));
  return ok === false ? 1 : 0;
}

/** Throws InputError that names the nearest. */
function commandOf(name: string): Command {
  if (Object.hasOwn(COMMANDS, name)) return COMMANDS[name];
  throw new InputError(
    `Unknown command "${name}"; did you mean "${nearestKey(name, Object.keys(COMMANDS))}"? See --help.`,
  );
}

function outputOf(json: boolean): Output {
  const print = (text: string) => void process.stdout.write(`${text}\n`);
  return {
    json,
    result: (value) => json && print(JSON.stringify(value, nullForNonFinite)),
    text: (text) => !json && print(text),
  };
}

/** JSON has no NaN; made explicit here rather than left to chance. */
const nullForNonFinite = (_key: string, value: unknown) =>
  typeof value === 'number' && !Number.isFinite(value) ? null : value;

function isBadInput(error: unknown): boolean {
  return error instanceof InputError || error instanceof OutOfMemoryError;
}

const isForTheUser = (error: unknown): error is Error =>
  isBadInput(error) || error instanceof NoAdapterError || error instanceof DeviceLostError;

/** One sentence for what a user can act on; the stack of everything else, since that is our bug. */
function describe(error: unknown): string {
  if (isForTheUser(error)) return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

function overview(): string {
  const lines = Object.entries(COMMANDS).map(([name, { summary }]) => `  ${name.padEnd(10)}${summary}`);
  return `webgrpo <command> [options]\n\n${lines.join('\n')}\n\n"webgrpo <command> --help" and "webgrpo help <command>" say more; --version prints ${version}.\n`;
}

function helpOf(name: string, { summary, usage, flags, details }: Command): string {
  const options = Object.entries(flags).map(([flag, { value, help }]) => {
    const word = value ? `--${flag} ${value}` : `--${flag}`;
    return `  ${word.padEnd(24)}${help}`;
  });
  const takesConfig = ['train', 'compare', 'sft', 'eval'].includes(name);
  return [
    `webgrpo ${name}: ${summary}`,
    '',
    ...usage.map((line) => `  webgrpo ${line}`),
    '',
    ...options,
    ...(details ? ['', details()] : []),
    ...(takesConfig ? ['', '  Config keys are set as key=value; "webgrpo config" lists them all.'] : []),
    '',
  ].join('\n');
}

const code = await main(process.argv.slice(2));
// Dawn's threads would keep the process alive; output is flushed first.
process.stdout.write('', () => process.exit(code));
