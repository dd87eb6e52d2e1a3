/** Tests decisions of `npm test`'s scripts on simulated systems. */

import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { stillThere } from '../../scripts/lib/adapter.mjs';
import {
  blocksOf,
  brokenLinks,
  isPacked,
  brokenPaths,
  commitIds,
  longSentences,
  matching,
  pagesWithoutOpening,
  proseLines,
  RULES,
  stringsOf,
} from '../../scripts/lib/prose.mjs';
import { howToInstall, missingLine } from '../../scripts/lib/requirements.mjs';
import { takesNode } from '../../scripts/lib/packages.mjs';
import { needsShell } from '../../scripts/lib/say.mjs';
import { overrunLines, overruns } from '../../scripts/lib/testBudget.mjs';
import { killRunning, processorSeconds, runNodeTimed } from '../../scripts/lib/runNodeTimed.mjs';
import { failures, fileSeconds, fromPlaywright, fromVitest } from '../../scripts/lib/testResults.mjs';
import { natsServerPath } from '../../src/cli/room/natsServerPath.mjs';

const debian = { platform: 'linux', hasApt: true } as const;
const fedora = { platform: 'linux', hasApt: false } as const;
const macOS = { platform: 'darwin', hasApt: false } as const;
const windows = { platform: 'win32', hasApt: false } as const;

test.each([
  ['nats-server', debian, 'apt-get install nats-server'],
  ['nats-server', fedora, 'see https://nats.io/download, and put nats-server on PATH'],
  ['nats-server', macOS, 'brew install nats-server'],
  ['nats-server', windows, 'choco install nats-server'],
  ['browser', debian, 'apt-get install chromium'],
  ['browser', macOS, 'npx playwright install chromium, or install Chrome and set CHROME_PATH to its executable'],
  ['browser', windows, 'npx playwright install chromium, or install Chrome and set CHROME_PATH to its executable'],
  ['lavapipe', windows, 'lavapipe is not available on Windows'],
  ['adapter', macOS, 'macOS includes Metal: update macOS, or run on a machine with a GPU'],
] as const)('how to install %s on %o', (program, system, command) => {
  expect(howToInstall(program, system)).toBe(command);
});

test.each(['adapter', 'browser', 'nats-server', 'lavapipe'] as const)(
  'only Debian is told of apt-get: %s',
  (program) => {
    for (const system of [fedora, macOS, windows]) expect(howToInstall(program, system)).not.toContain('apt-get');
    expect(howToInstall(program, debian)).toContain('apt-get');
  },
);

test('a missing program is named with what is skipped and how to install it', () => {
  expect(missingLine('nats-server', 'tests of rooms', macOS)).toBe(
    'nats-server: not found; tests of rooms are skipped. To install it: brew install nats-server',
  );
});

test.each([
  ['linux', { PATH: '/a:/b' }, '/b/nats-server', '/b/nats-server'],
  ['linux', {}, '/usr/sbin/nats-server', '/usr/sbin/nats-server'],
  ['darwin', { PATH: '' }, '/opt/homebrew/bin/nats-server', '/opt/homebrew/bin/nats-server'],
  ['win32', { Path: 'C:\\x;C:\\nats' }, 'C:\\nats\\nats-server.exe', 'C:\\nats\\nats-server.exe'],
  ['win32', { Path: 'C:\\nats' }, 'C:\\nats\\nats-server', ''],
] as const)('nats-server on %s with %o', (platform, env, there, found) => {
  expect(natsServerPath({ platform, env, exists: (path) => path === there })).toBe(found);
});

test('npm needs a shell on Windows alone; Node and programs never do', () => {
  expect([needsShell('npm', 'win32'), needsShell('npm', 'linux'), needsShell('npx', 'darwin')]).toEqual([
    true,
    false,
    false,
  ]);
  expect([needsShell(process.execPath, 'win32'), needsShell('C:\\bun.exe', 'win32')]).toEqual([false, false]);
});

test.each([
  ['20.18.3', false],
  ['20.19.0', true],
  ['21.7.0', false],
  ['22.11.0', false],
  ['22.12.0', true],
  ['24.0.0', true],
  ['18.20.0', false],
])('Node %s is taken: %s', (version, taken) => {
  expect(takesNode(version)).toBe(taken);
});

test('processor seconds are parsed from the output of sh, and unknown for other output', () => {
  expect(processorSeconds('0m0.01s 0m0.02s\n1m2.50s 0m5.25s\n')).toBe(67.75);
  expect(processorSeconds('')).toBeUndefined();
});

test.each([fromVitest, fromPlaywright])(
  'a runner without results, or with damaged ones, has run no test: %o',
  (count) => {
    const file = join(mkdtempSync(join(tmpdir(), 'webgrpo-results-')), 'unit.json');
    const none = { passed: 0, failed: 0, skipped: 0 };
    expect([count(file, true), count(file, false)]).toEqual([none, { ...none, failed: 1 }]);
    writeFileSync(file, '{"numPassedTests": 3, "stats"');
    expect([count(file, true), count(file, false)]).toEqual([none, { ...none, failed: 1 }]);
    expect([failures(file, '.'), fileSeconds(file, '.')]).toEqual([[], []]);
  },
);

test('a stage is ended together with the processes that it has started', async () => {
  const run = runNodeTimed(['-e', 'setInterval(() => {}, 1000)'], { cwd: '.', env: process.env, isLive: false });
  killRunning('SIGKILL');
  expect((await run).ok).toBe(false);
});

test('a stored software adapter is looked for again when a driver or a GPU is added, but not one that the user chose', () => {
  const stored = {
    name: 'SwiftShader',
    software: true,
    env: { VK_ICD_FILENAMES: 'package.json' },
    icd: 'package.json',
  };
  vi.stubEnv('VK_ICD_FILENAMES', '');
  vi.stubEnv('VK_ADD_DRIVER_FILES', 'x.json');
  expect(stillThere(stored)).toBe(false);
  expect(stillThere({ ...stored, software: false })).toBe(true);
  vi.stubEnv('VK_ICD_FILENAMES', 'package.json');
  expect(stillThere(stored)).toBe(true);
  expect(stillThere({ ...stored, icd: 'nowhere.json' })).toBe(false);
  vi.unstubAllEnvs();
});

const stage = (files: Record<string, number>) => ({ unit: { seconds: 1, tests: 1, files } });
const stored = stage({ a: 10, b: 10, c: 10, d: 1 });

test('a slower machine names no file', () => {
  expect(overruns(stage({ a: 50, b: 52, c: 48, d: 5 }), stored)).toEqual([]);
});

test('a file that takes over three times its share is named, also if it is new', () => {
  const found = overruns(stage({ a: 10, b: 10, c: 10, d: 5, e: 4 }), stored);
  expect(found.map(({ file }) => file)).toEqual(['d', 'e']);
  expect(overrunLines(found)).toContain('unit d: 5.0 s, 12.8% of its stage; stored: 3.2%');
});

test('a small file and an unknown stage are not named', () => {
  expect(overruns(stage({ a: 10, b: 10, c: 10, tiny: 0.5 }), stored)).toEqual([]);
  expect(overruns({ other: { seconds: 1, tests: 1, files: { a: 1 } } }, stored)).toEqual([]);
  expect(overrunLines([])).toBe('');
});

const linesOf = (text: string, file = 'a.md') => text.split('\n').map((text, i) => ({ file, number: i + 1, text }));

test.each([
  ['/** What a step is at. */', 1],
  [' * Of the prompt group.', 1],
  ['  // Throws InputError where it is none', 2],
  ['// Its run goes on; nobody waits.', 3],
  ['/** Returns what a step of the run has computed, as its caller asked. */', 0],
])('rules of prose that a comment breaks: %s', (text, count) => {
  const comments = linesOf(text, 'a.ts');
  expect(RULES.filter((rule) => matching(rule, { comments, docs: [], strings: [] }).length > 0)).toHaveLength(count);
});

test.each([
  ["throw new InputError('a.txt is no text; save it.')", 2],
  ["throw new InputError(`${file} is none` + '; give another one.')", 2],
  ["say('nobody waits, the run goes on')", 2],
  ['<p title="Set it anew">A tab that nobody sees</p>', 2],
  ["say('there is no file, a.txt is no longer there; allowed: a, b')", 0],
  ['// It is no text; give another, said the author', 0],
  ["const end = /'is none'/; // under way", 0],
  ["run('files.map((file) => { file is no text; set(file) })')", 0],
])('rules of prose that a string breaks: %s', (source, count) => {
  const strings = stringsOf(source, 'a.tsx');
  expect(RULES.filter((rule) => matching(rule, { comments: [], docs: [], strings }).length > 0)).toHaveLength(count);
});

test('strings of a source: each with its line, joined by +, and those inside a template apart', () => {
  const source = ["f('one' +", "  'two', /* 'no' */ `a ${b ? `c ${'d'}` : {}} e`);", "<p>It's here</p>"].join('\n');
  expect(stringsOf(source, 'a.tsx').map(({ number, text }) => `${number} ${text}`)).toEqual([
    '1 onetwo',
    '2 d',
    "2 c ${'d'}",
    "2 a ${b ? `c ${'d'}` : {}} e",
    "3 It's here",
  ]);
});

test('a sentence is counted across the lines of its paragraph, and not in code, tables, headings or the next item', () => {
  const words = (count: number) => Array.from({ length: count }, (_, i) => `w${i}`).join(' ');
  const counted = (text: string) => longSentences(linesOf(text)).map(({ number }) => number);
  expect(counted(`A\n\n${words(20)}\n${words(21)}. End.`)).toEqual([3]);
  expect(counted(`${words(20)}\n${words(20)}. ${words(20)}.`.replace('. w', '. W'))).toEqual([]);
  expect(counted(`- ${words(30)}\n- ${words(30)}\n\n${words(30)}`)).toEqual([]);
  expect(counted(`\`\`\`\n${words(50)}\n\`\`\`\n| ${words(50)} |\n# ${words(50)}\n\n    ${words(50)}`)).toEqual([]);
  expect(longSentences([...linesOf(words(30), 'a.md'), ...linesOf(words(30), 'b.md')])).toEqual([]);
});

test('paragraphs without headings, tables, code, and lists with their continuation lines', () => {
  const text =
    '# A\n\n(one)\n2 two\n\n- item\n  more\nlazy\n\n* item\nlazy\n1. item\n\n```\ncode\n```\n    code\n\n| cell |\n\n**Bold** text\n- item';
  expect(proseLines(linesOf(text)).map((line) => line.text)).toEqual(['(one)', '2 two', '**Bold** text']);
  expect(blocksOf(linesOf('**Bold** text of one\nparagraph')).map((block) => block.text)).toEqual([
    '**Bold** text of one paragraph',
  ]);
});

test.each([
  ['# A\n\nFor readers of\nruns. After this page you can read one.\n\n## B', 0],
  ['# A\n\nFor readers. You can read.', 0],
  ['# A\n\nFor readers of runs.\n\nYou can read one.', 1],
  ['# A\n\n| For. | you. |', 1],
  ['# A\nFor readers. Here you can read.', 1],
  ['For readers. Here you can read.', 1],
  ['# A', 1],
])('a page opens with its reader and what "you" can do: %j', (text, count) => {
  expect(
    pagesWithoutOpening([...linesOf(text, 'docs/guides/a.md'), ...linesOf('# B\n\nText.', 'README.md')]),
  ).toHaveLength(count);
  expect(pagesWithoutOpening(linesOf(text, 'docs/decisions/a.md'))).toEqual([]);
});

test('commit ids and paths of documents are found, other words are not', () => {
  expect(commitIds(linesOf('at 0292a61, `853b065`, at 1234567, `deadbee`, sha 0123abc')).map(({ id }) => id)).toEqual([
    '0292a61',
    '853b065',
  ]);
  const exists = (path: string) => path === 'src/a.ts';
  expect(brokenPaths(linesOf('`src/a.ts` `src/`\n`src/b.ts`\n`npm run src/b.ts`'), exists)).toHaveLength(1);
});

test.each([
  ['README.md', true],
  ['docs/a.md', true],
  ['docs', true],
  ['docs/images/demo.png', true],
  ['docs/images/page-1440-light.webp', false],
  ['documents/a.md', false],
  ['dist/lib/a.js', true],
  ['dist/lib/b/quickjs1.map', false],
  ['demo/lessons/index.html', false],
])('%s is in the package: %s', (path, isIn) => {
  expect(isPacked(path, ['docs', 'dist/lib', '!docs/images/page-*', '!dist/**/quickjs*.map'])).toBe(isIn);
});

test('links to pages and headings that do not exist are found, whatever the folder', () => {
  const line = (file: string) => (text: string, i: number) => ({ file, number: i + 1, text });
  const other = ['# Top', '```sh', '# not a heading', '```', '## A `b` & c', '## Top'].map(line('docs/guides/b.md'));
  const good = '[a](b.md#a-b--c) [b](b.md#top-1) [c](../) [d](#here) [e](https://x.org/#y) `[f](g.md)`';
  const bad = ['[a](b.md#a-b)', '[b](b.md#not-a-heading)', '[c](c.md)', '[d](#there)'];
  const docs = [...other, ...['# Here', good, ...bad].map(line('docs/guides/a.md'))];
  const exists = (path: string) => ['docs/guides/a.md', 'docs/guides/b.md', 'docs/'].includes(path);
  expect(brokenLinks(docs, exists).map(({ text }) => text)).toEqual(bad);
});
