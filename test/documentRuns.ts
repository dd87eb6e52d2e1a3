/** The commands of README and the documents as tests run them: placeholders are filled in, and runs are small and short. */

import { readdirSync, readFileSync } from 'node:fs';
import { commandsIn, notRunIn } from './documentCommands.ts';

export interface DocumentCommand {
  page: string;
  /** The command as one text, without a starter such as `npm run -s webgrpo --`. */
  line: string;
  words: string[];
  /** True if the page says that no test runs the command. */
  isMarked: boolean;
}

const startsWith = (words: readonly string[], start: readonly string[]) => start.every((word, i) => words[i] === word);

/** True for a command that is only named in the text, such as `webgrpo serve`, `webgrpo verify losses` or `npx webgrpo`. */
const isName = ([program, ...words]: string[]) =>
  (program === 'webgrpo' && words.length < (['export', 'verify'].includes(words[0]) ? 3 : 2)) ||
  /^(npm webgrpo --|other npx webgrpo)$/.test([program, ...words].join(' '));

/** Pages whose commands are tested. Dated records (docs/lab) are not among them: they have the commands of their day. */
const pages = ['README.md', ...readdirSync('docs', { recursive: true, encoding: 'utf8' }).map((name) => `docs/${name}`)]
  .map((name) => name.replaceAll('\\', '/'))
  .filter((name) => name.endsWith('.md') && !name.startsWith('docs/lab/'))
  .map((name) => ({ name, text: readFileSync(name, 'utf8') }));

export const documentCommands: DocumentCommand[] = pages.flatMap(({ name, text }) => {
  const marks = notRunIn(text);
  return commandsIn(text)
    .filter((words) => !isName(words))
    .map((words) => ({
      ...{ page: name, line: words.join(' '), words },
      isMarked: marks.some((start) => startsWith(words, start)),
    }));
});

/** Commands that a page lists as not run by tests, although the page does not show them. */
export const idleMarks: string[] = pages.flatMap(({ name, text }) =>
  notRunIn(text)
    .filter((start) => !commandsIn(text).some((words) => startsWith(words, start)))
    .map((start) => `${name}: ${start.join(' ')}`),
);

/** Commands that are run by other tests: first words of the command, test file, and the text in the file that runs it. */
export const OTHER_TESTS: readonly (readonly [start: string, file: string, text: string])[] = [
  ['webgrpo join', 'test/unit/roomCommand.test.ts', "start('join'"],
  ['webgrpo room CONFIG --nats', 'test/gpu/roomCommand.node.test.ts', "'--nats'"],
  ['webgrpo train configs/gsm8k-tool.yaml --in chromium', 'test/gpu/trainCommand.node.test.ts', "'--in'"],
  ['webgrpo score', 'test/unit/score.test.ts', "'score'"],
  ['npm build', 'test/e2e/pack.test.ts', 'scripts/build.mjs'],
  ['npm build:page', 'test/e2e/staticPage.spec.ts', 'scripts/buildPage.mjs'],
  ['npm docs', 'scripts/test.mjs', "'docs'"],
  ['npm campaign', 'scripts/test.mjs', "'campaign'"],
  ['node scripts/size.mjs', 'scripts/test.mjs', "'size'"],
  ['node scripts/bundlers.mjs', 'scripts/test.mjs', "'bundlers'"],
  ['node scripts/runtimes.mjs', 'scripts/test.mjs', "'runtimes'"],
  ['node scripts/recipes.mjs', 'scripts/test.mjs', "'recipes'"],
  ['other node --test', 'test/unit/initCommand.test.ts', "'--test'"],
  ['other npm pack', 'test/e2e/pack.test.ts', 'pack('],
];
const otherStarts = OTHER_TESTS.map(([start]) => start.split(' '));

/** Commands of webgrpo that compute on a device without an engine. test/gpu/documentRuns.node.test.ts runs them. */
const ON_DEVICE = new Set(['sft', 'verify', 'tune']);

/** Returns the runner of a command; undefined if no test runs the command and its page does not say so. */
export function runnerOf({ words, isMarked }: DocumentCommand): 'none' | 'unit' | 'gpu' | 'other' | undefined {
  const [program, command, argument] = words;
  if (isMarked) return 'none';
  if (otherStarts.some((start) => startsWith(words, start))) return 'other';
  if (program === 'webgrpo') return ON_DEVICE.has(command) ? 'gpu' : 'unit';
  // `cd`, `npm test` and `npx vitest` count as run by the unit tests: the last two start the tests themselves.
  if (program !== 'other') return undefined;
  return command === 'cd' || /^(npm test|npx vitest)$/.test(`${command} ${argument}`) ? 'unit' : undefined;
}

const TRAINS = new Set(['train', 'compare', 'serve', 'room']);
const SMALL = [
  ...['data.trainBatchSize=2', 'actor.ppoMiniBatchSize=2', 'rollout.n=2', 'data.valMaxSamples=2'],
  ...['trainer.kernelTuning=off', 'trainer.keepRollouts=true', 'trainer.saveFreq=1'],
];
const SHORT = ['trainer.totalTrainingSteps=2', 'trainer.testFreq=1'];

/** Returns the words of `webgrpo` to run. Each output path is replaced by a new name, and each port by 0, which means any free port. */
export function filled([command, ...words]: readonly string[], output: (name: string) => string): string[] {
  const values: Record<string, (value: string) => string> = {
    '--out': output,
    '--kernels': output,
    '--port': () => '0',
    '--seeds': () => '1',
  };
  const args = words.map((word, i) => {
    const value = values[words[i - 1]]?.(word);
    const place = word.replace(/^CONFIG$/, 'configs/gsm8k-tool.yaml').replace(/^runs\/NAME/, 'runs/gsm8k-tool');
    return value ?? place.replace(/^DIR$/, 'runs/gsm8k-tool');
  });
  const isServer = command === 'serve' || command === 'room';
  if (isServer) args.push(...(words.includes('--port') ? [] : ['--port', '0']), 'name=served');
  if (command === 'sft')
    return [command, ...args, 'trainer.totalTrainingSteps=2', 'optim.lrWarmupSteps=0', 'data.trainBatchSize=2'];
  if (command === 'eval') args.push('data.valMaxSamples=2');
  return TRAINS.has(command) ? [command, args[0], ...SMALL, ...args.slice(1), ...SHORT] : [command, ...args];
}
