/** Prints the help of the commands as text, for `webgrpo help` and docs/reference/cli.md. */

import type { FlagSpec } from './args.ts';
import type { Command } from './command.ts';

type Commands = Readonly<Record<string, Command>>;

/** Returns the list of commands, for `webgrpo help`. */
export function overviewText(commands: Commands, version: string): string {
  const lines = Object.entries(commands).map(([name, { summary }]) => `  ${name.padEnd(10)}${summary}`);
  return `webgrpo <command> [options]\n\n${lines.join('\n')}\n\n"webgrpo <command> --help" and "webgrpo help <command>" say more; --version prints ${version}.\n`;
}

/** Returns the help of one command. */
export function helpText(name: string, { summary, usage, flags, details, reads }: Command): string {
  return [
    `webgrpo ${name}: ${summary}`,
    '',
    ...usage.map((line) => `  webgrpo ${line}`),
    '',
    ...Object.entries(flags).map(([flag, spec]) => `  ${flagWords(flag, spec).padEnd(24)}${spec.help}`),
    ...(details ? ['', details()] : []),
    ...(reads.includes('settings') ? ['', '  Config keys are set as key=value; "webgrpo config" lists them all.'] : []),
    '',
  ].join('\n');
}

/** Returns docs/reference/cli.md. */
export function commandsMarkdown(commands: Commands): string {
  return [
    '# Command line',
    '',
    'For anyone who runs `webgrpo` in a terminal or from a script. Here you can look up a command, a flag or an exit code.',
    '',
    'Printed from the table of commands by `npm run -s webgrpo -- help --markdown`. `webgrpo` is `npm run -s webgrpo --` in a clone, and `npx webgrpo` if the',
    'package is installed. Commands marked "key=value" take [config keys](config.md) as words, as in `seed=2 actor.optim.lr=1e-4`. A flag with `...` can be given',
    'several times.',
    '',
    '| command | what it does | key=value |',
    '| --- | --- | --- |',
    ...Object.entries(commands).map(
      ([name, { summary, reads }]) =>
        `| [${name}](#${name}) | ${cell(summary)} | ${reads.includes('settings') ? 'yes' : ''} |`,
    ),
    '',
    '## Output and exit codes',
    '',
    'Standard output has the result, standard error the progress. With `--json` standard output has one JSON object and nothing else; a number that is not',
    'finite is `null` there. `webgrpo help COMMAND` and `webgrpo COMMAND --help` print the help of a command, `webgrpo --version` the version.',
    '',
    '| exit code | meaning |',
    '| --- | --- |',
    '| 0 | done |',
    '| 1 | the run failed, no GPU adapter was found, or webgrpo has a bug; `verify`: a kernel is wrong on this adapter |',
    '| 2 | an input is wrong (command line, config, file), or the run does not fit into memory or onto the disk |',
    '| 3 | stopped by a signal and saved: after the current step, an evaluation at once; `join` has left its room |',
    '| 128 + N | ended at once by signal N, e.g. 130 after a second Ctrl-C, as a shell reports it |',
    ...Object.entries(commands).flatMap(([name, command]) => section(name, command)),
    '',
    'No test runs `webgrpo verify losses`.',
    '',
  ].join('\n');
}

function section(name: string, { summary, usage, flags, details }: Command): string[] {
  const rows = Object.entries(flags).map(
    ([flag, spec]) => `| \`${flagWords(flag, spec)}${spec.repeatable ? ' ...' : ''}\` | ${cell(spec.help)} |`,
  );
  const text = details?.();
  return [
    '',
    `## ${name}`,
    '',
    `${summary[0].toUpperCase()}${summary.slice(1)}.`,
    '',
    ...usage.map((line) => `    webgrpo ${line}`),
    ...(rows.length > 0 ? ['', '| flag | |', '| --- | --- |', ...rows] : []),
    ...(text === undefined ? [] : ['', '```', text, '```']),
  ];
}

const flagWords = (flag: string, { value }: FlagSpec) => (value ? `--${flag} ${value}` : `--${flag}`);

const cell = (text: string) => text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
