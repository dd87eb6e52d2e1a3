/**
 * Tests docs/inside/security.md and room-security.md: each line of their tables names a test that exists, and their statements about the
 * package are true.
 */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const read = (file: string): string => readFileSync(file, 'utf8');
const pages = ['security', 'room-security'].map((name) => read(`docs/inside/${name}.md`));

interface Locked {
  dev?: boolean;
  link?: boolean;
  license?: string;
  integrity?: string;
  inBundle?: boolean;
}
const { packages } = JSON.parse(read('package-lock.json')) as { packages: Record<string, Locked> };
const installed = Object.entries(packages).filter(([path, { link }]) => path.startsWith('node_modules/') && !link);

test.each(pages)('every line names a test that exists', (page) => {
  const named = [...page.matchAll(/`(test\/[^`]+)`: ([^|\n]+)/g)];
  expect(named.length).toBeGreaterThan(15);
  for (const [, file, title] of named) expect(read(file), `${file}: ${title}`).toContain(title.trim());
  const rows = page.split('\n').filter((line) => /^\| (?!source |---)/.test(line));
  for (const row of rows) expect(row).toMatch(/\| `test\/[^`]+`: .+ \|$/);
});

test('the dependencies are the listed ones', () => {
  const { dependencies } = JSON.parse(read('package.json')) as { dependencies: Record<string, string> };
  const reasons = read('docs/decisions/dependencies.md');
  expect(Object.keys(dependencies)).toHaveLength(9);
  for (const name of Object.keys(dependencies)) expect(reasons, name).toContain(`\`${name}\``);
});

test('every package is locked by hash', () => {
  const loose = installed.filter(([, { integrity, inBundle }]) => integrity === undefined && inBundle !== true);
  expect(loose.map(([path]) => path)).toEqual([]);
  expect(read('.npmrc')).toContain('ignore-scripts=true');
});

test('licences', () => {
  const allowed = [
    ...['MIT', 'Apache-2.0', 'BSD-2-Clause', 'BSD-3-Clause', 'ISC', '0BSD', 'BlueOak-1.0.0', 'CC0-1.0'],
    'Unlicense',
  ];
  const others = installed.filter(([, { dev, license }]) => !dev && !allowed.includes(license ?? 'none'));
  expect(
    others.map(([path]) => path.replace('node_modules/', '')).filter((name) => !/^lightningcss/.test(name)),
  ).toEqual([]);
});

test('nothing is written as HTML', () => {
  const files = ['src', 'demo'].flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((file) => join(folder, file)),
  );
  const scripts = files.filter((file) => file.endsWith('.ts'));
  expect(scripts.length).toBeGreaterThan(200);
  const html = /\.(inner|outer)HTML\s*=[^=]|insertAdjacentHTML|document\.write\b|\beval\(|new Function\(/;
  expect(scripts.filter((file) => html.test(read(file)))).toEqual([]);
});
