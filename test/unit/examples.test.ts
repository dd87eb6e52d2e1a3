/**
 * Every file of examples/ is quoted unchanged in a document, with its number of lines. Every command in README and the documents is
 * accepted by the command line, with its flags and config keys.
 */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { scripts } from '../../package.json';
import { keysAndParts } from '../../src/grpo/config/keys.ts';
import { TRAIN_SCHEMA } from '../../src/grpo/config/schema/index.ts';
import { SFT_SCHEMA } from '../../src/extensions/sft/schema.ts';
import { webgrpo } from '../commandLine.ts';
import { commandsIn } from '../documentCommands.ts';

const names = ['README.md', ...readdirSync('docs', { recursive: true, encoding: 'utf8' }).map((name) => `docs/${name}`)]
  .filter((name) => name.endsWith('.md'))
  .map((name) => name.replaceAll('\\', '/'));
const documents = names.map((name) => readFileSync(name, 'utf8'));

/** Code blocks that quote an example: `<!-- examples/NAME, 12 lines -->`, then the file. Empty lines do not count as lines. */
const quoted = new Map(
  documents.flatMap((text) =>
    [...text.matchAll(/<!-- (examples\/[^,]+), (\d+) lines -->\n+```\w*\n([^]*?)```/g)].map(
      ([, name, lines, code]) => [name, { lines: Number(lines), code }] as const,
    ),
  ),
);

const files = readdirSync('examples', { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map(({ parentPath, name }) => `${parentPath}/${name}`.replaceAll('\\', '/'));

const linesOf = (text: string): number => text.split('\n').filter((line) => line.trim() !== '').length;

describe('examples', () => {
  test.each(files)('%s is in a document', (file) => {
    const text = readFileSync(file, 'utf8');
    const found = quoted.get(file);
    expect(found?.code).toBe(text);
    expect(found?.lines).toBe(linesOf(text));
  });

  test("README's table has the lines of each", () => {
    const told: [string, number][] = [...documents[0].matchAll(/\[[^\]]+\]\((examples\/[^)]+)\) (\d+)/g)].map(
      ([, file, count]) => [file, Number(count)],
    );
    expect(told.length).toBeGreaterThan(10);
    for (const [file, count] of told) expect([file, linesOf(readFileSync(file, 'utf8'))]).toEqual([file, count]);
  });

  test('documents quote only existing files', () => {
    expect([...quoted.keys()].filter((name) => !files.includes(name))).toEqual([]);
  });
});

describe('commands', () => {
  /** Pages of docs/lab are excluded, because they are dated: their commands were valid on their date. */
  const current = names.filter((name) => !name.startsWith('docs/lab/'));
  const commands = current.flatMap((name) => commandsIn(readFileSync(name, 'utf8')).map((words) => [name, ...words]));
  const keys = { train: keysAndParts(TRAIN_SCHEMA), sft: keysAndParts(SFT_SCHEMA) };

  test('are found in many pages', () => {
    expect(commands.length).toBeGreaterThan(60);
    expect(new Set(commands.map(([name]) => name)).size).toBeGreaterThan(12);
  });

  test('webgrpo knows each, with its flags', async () => {
    const refused: string[] = [];
    for (const [name, program, ...words] of commands.filter(([, program]) => program === 'webgrpo')) {
      const { status, said } = await webgrpo([...words, '--help']);
      if (status !== 0) refused.push(`${name}: ${program} ${words.join(' ')}: ${said.at(-1)}`);
    }
    expect(refused).toEqual([]);
  });

  /** `actor.policyLoss.beta` is a setting of the loss that examples/my-loss.js registers. */
  const known = (command: string, key: string): boolean =>
    keys[command === 'sft' ? 'sft' : 'train'].has(key) ||
    /^actor\.policyLoss\.beta$|^(task\.options|data\.chatTemplateKwargs|reward\.weights)\.\w+$/.test(key);

  test('config keys, recipes, scripts and example files exist', () => {
    const missing = commands.flatMap(([name, program, command, ...words]) => {
      // The script of `npm run dev` belongs to a reader's Vite project.
      if (program === 'npm')
        return Object.hasOwn({ ...scripts, dev: '' }, command) ? [] : [`${name}: npm run ${command}`];
      if (program === 'other') return [];
      if (program === 'node') return existsSync(command) ? [] : [`${name}: node ${command}`];
      return words.flatMap((word) => {
        const [, key] = /^([\w.]+)=/.exec(word) ?? [];
        const path = /^(?:\.\/)?((?:configs|examples)\/\S+)$/.exec(word.replace(/^[\w.]+=/, ''))?.[1];
        return [
          ...(key !== undefined && !known(command, key) ? [`${name}: ${command} ${key}`] : []),
          ...(path !== undefined && !existsSync(path) ? [`${name}: ${path}`] : []),
        ];
      });
    });
    expect(missing).toEqual([]);
  });

  test('config keys in the text exist', () => {
    const PARTS = Object.keys(TRAIN_SCHEMA.entries).join('|');
    /** Excludes names that contain `_`, which belong to verl and TRL, and names of a module's exports. */
    const key = new RegExp(`\`((?:${PARTS})\\.[a-zA-Z.]+)(?:[:=][^\`]*)?\``, 'g');
    const unknown = current
      .filter((name) => /^README|^docs\/(start|guides)/.test(name))
      .flatMap((name) =>
        Array.from(readFileSync(name, 'utf8').matchAll(key), ([, found]) => found)
          .filter(
            (found) => !known('train', found) && !known('sft', found) && !/\.(json|mjs|py|safetensors)$/.test(found),
          )
          .map((found) => `${name}: ${found}`),
      );
    expect(unknown).toEqual([]);
  });
});
