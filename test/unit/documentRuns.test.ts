/**
 * Runs the `webgrpo` commands of README on a scripted engine, in a folder with a finished run; with --full, those of all documents, page by
 * page. examples.test.ts checks the flags, config keys and files of all commands. A command that needs a device, a network or another
 * program is run by another test (test/documentRuns.ts), or its page says that no test runs it.
 */

import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { saveAdapter } from '../../src/model/lora/adapter.ts';
import { initLora, type LoraConfig } from '../../src/model/lora/weights.ts';
import { parseModelConfig } from '../../src/model/config.ts';
import { RunningCommand, scriptedEngines } from '../commandLine.ts';
import { documentCommands, filled, idleMarks, OTHER_TESTS, runnerOf } from '../documentRuns.ts';
import { hasNatsServer, hasOpenssl, selfSigned } from '../natsServer.ts';

const isFull = process.env['FULL_TESTS'] === '1';
const root = process.cwd();
const folder = mkdtempSync(join(tmpdir(), 'webgrpo-documents-'));
let outputs = 0;
const output = (name: string) => join(folder, `${++outputs}-${name.replaceAll('/', '-')}`);

/**
 * Returns the output of a command that failed; '' if it succeeded. A server is stopped as soon as it can be used, and a conversation after
 * one question.
 */
async function failureOf(words: string[]): Promise<string> {
  if (words[0] === 'init') rmSync(words[1], { recursive: true, force: true });
  const isServer = words[0] === 'serve' || words[0] === 'room';
  const command = new RunningCommand(words, { createEngine: scriptedEngines(), isTTY: isServer });
  if (words.includes('--chat')) command.type('one\n/exit\n');
  if (isServer) {
    const canStop = command.said(words[0] === 'room' ? /step 1: / : /serving .* at/);
    await Promise.all([canStop, command.listens]).catch(() => undefined); // it has ended, with the error below
    command.signal('SIGINT');
  }
  const { status, said } = await command.done;
  return status === (isServer ? 3 : 0) ? '' : `${words.join(' ')}: ${status}: ${said.slice(-3).join('\n')}`;
}

/** Overwrites a checkpoint with an adapter, because the scripted engine does not train adapters. */
function writeAdapter(checkpoint: string): void {
  const model = parseModelConfig(JSON.parse(readFileSync('models/base/config.json', 'utf8')));
  const lora: LoraConfig = {
    ...{ rank: 4, alpha: 8, dropout: 0, useRslora: false, seed: 1 },
    targetModules: ['q_proj'],
  };
  rmSync(checkpoint, { recursive: true });
  mkdirSync(checkpoint);
  for (const [name, bytes] of saveAdapter({ lora, tensors: initLora(model, lora), baseModel: resolve('models/base') }))
    writeFileSync(join(checkpoint, name), bytes);
}

/** Prepares the folder for the commands of a page. It contains the finished run, as a user's folder would. */
function startPage(): void {
  process.chdir(folder);
  for (const name of ['runs', 'my-task', 'my-env']) rmSync(name, { recursive: true, force: true });
  if (existsSync('finished')) cpSync('finished', 'runs', { recursive: true });
}

beforeAll(async () => {
  startPage();
  for (const name of ['configs', 'examples', 'checkpoints', 'scripts'])
    symlinkSync(resolve(root, name), name, 'junction');
  cpSync('examples/replay-reward.js', 'new.js');
  cpSync('checkpoints/gsm8k-tool', 'models/base', { recursive: true });
  writeFileSync('tiles.json', '{}');
  if (hasNatsServer() && hasOpenssl) selfSigned(folder);
  for (const own of isFull ? [[], ['name=full'], ['name=lora']] : [[]])
    expect(await failureOf(filled(['train', 'configs/gsm8k-tool.yaml', ...own], output))).toBe('');
  if (isFull) writeAdapter('runs/lora/checkpoints/step-2');
  cpSync('runs', 'finished', { recursive: true });
});
afterAll(() => process.chdir(root));

test('every command is run by a test, or its page says that none runs it', () => {
  const unknown = documentCommands.filter((command) => runnerOf(command) === undefined);
  expect(unknown.map(({ page, line }) => `${page}: ${line}`)).toEqual([]);
  expect(idleMarks).toEqual([]);
  const onDevice = documentCommands.filter((one) => runnerOf(one) === 'gpu');
  const unfilled = onDevice.filter(({ words }) =>
    filled(words.slice(1), () => 'out').some((word) => /^[A-Z]{2,}$/.test(word)),
  );
  expect(unfilled.map(({ page, line }) => `${page}: ${line}`)).toEqual([]);
  for (const [start, file, text] of OTHER_TESTS)
    expect(readFileSync(resolve(root, file), 'utf8'), `${start} in ${file}`).toContain(text);
});

/** Commands that have run on an earlier page, and need not run again. `init` runs again, because its folder is needed. */
const hasRun = new Set<string>();
const pages = new Set(documentCommands.map(({ page }) => page).filter((page) => isFull || page === 'README.md'));
test.each([...pages])('%s', async (page) => {
  startPage();
  const failures: string[] = [];
  for (const command of documentCommands.filter((one) => one.page === page && runnerOf(one) === 'unit')) {
    const [program, ...words] = command.words;
    if (words[0] === 'cd') process.chdir(words[1]);
    if (program !== 'webgrpo' || (words[0] === 'room' && !(hasNatsServer() && hasOpenssl)) || hasRun.has(command.line))
      continue;
    failures.push(await failureOf(filled(words, output)));
    if (words[0] !== 'init') hasRun.add(command.line);
  }
  expect(failures.filter((failure) => failure !== '')).toEqual([]);
});
