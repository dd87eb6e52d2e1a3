/** Tests the pages around the lessons: contents, questions, schedule and class board. */

import { readdirSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { expect, test, vi } from 'vitest';
import { bandOf, curveOf, inWords, MOST, readLinks } from '../../demo/lessons/board/board.ts';
import { STILLS as HANDOUT } from '../../demo/lessons/handout/stills.ts';
import { boardPlot, runPlot } from '../../demo/lessons/kit/plot.ts';
import type * as progressOf from '../../demo/lessons/kit/progress.ts';
import { QUESTIONS } from '../../demo/lessons/questions.ts';
import { encodeResult } from '../../demo/state/address/share.ts';
import { signed } from '../../src/ui/format.ts';
import { lessonPages, lessons, lessonStills } from '../../scripts/lib/lessons.mjs';

const link = async (seed: number) => {
  const history = [1, 2].map((step) => ({ 'training/global_step': step, 'critic/score/mean': seed * step }));
  const result = { history, adapter: '', seconds: 1, trainedTokens: 1, changes: [] };
  return `https://example.org/?seed=${seed}#r=${await encodeResult(result)}`;
};

test('the board reads links out of any text, once each, and names what it leaves out', async () => {
  const [one, two] = [await link(1), await link(2)];
  const { results, problems } = await readLinks(`Ann: ${one}, Ben:\n${two} and again ${one} #r=AAAA`);
  expect(results.map(({ name }) => name)).toEqual(['seed 1', 'seed 2']);
  expect(problems).toEqual([expect.stringMatching(/^result 3: The result in this link is damaged/)]);
  expect((await readLinks('hello')).problems).toEqual([expect.stringMatching(/^No result was found/)]);
  expect(await readLinks('')).toEqual({ results: [], problems: [] });
});

test('the board shows at most 40 results', async () => {
  const links = await Promise.all(Array.from({ length: MOST + 2 }, (_, seed) => link(seed)));
  const { results, problems } = await readLinks(links.join('\n'));
  expect(results).toHaveLength(MOST);
  expect(problems).toEqual(['42 links were pasted. The board shows the first 40.']);
});

test('mean and band are over the curves that have a value at a step', async () => {
  const { results } = await readLinks(`${await link(1)} ${await link(3)}`);
  const curves = results.map((result) => curveOf(result, 'critic/score/mean', 2));
  expect(curves[0][0]).toBeNull();
  const band = bandOf([...curves, [0.5, null, null]]);
  expect(band[0]).toEqual({ mean: 0.5, low: 0.5, high: 0.5 });
  expect(band[1].mean).toBeCloseTo(2, 3);
  expect(band[1].high).toBeCloseTo(2 + Math.SQRT2, 3);
  expect(inWords(curves, 'reward')).toBe('2 results: the last reward is from 2.00 to 6.00, with a mean of 4.00.');
  expect(inWords([], 'reward')).toBe('Paste links to see their curves.');
  expect(boardPlot(curves, band, 'two')).not.toMatch(/NaN|Infinity/);
});

test.each([[[]], [[null]], [[null, 0, 0]], [[null, 1e-9, null, -3]]])('a chart of %j has numbers only', (curve) => {
  expect(runPlot(curve, 'a curve', { step: 1, behind: [[null, 2]] })).not.toMatch(/NaN|Infinity|undefined/);
});

test('six questions have three options each, one of them right, and a lesson', () => {
  expect(QUESTIONS).toHaveLength(6);
  for (const { options, right, lesson } of QUESTIONS) {
    expect(new Set(options).size).toBe(3);
    expect(options[right]).toBeDefined();
    expect(lesson).toBeGreaterThanOrEqual(1);
    expect(lesson).toBeLessThanOrEqual(7);
  }
  expect(new Set(QUESTIONS.map(({ right }) => right)).size).toBe(3);
});

test.each([
  ['+1', 1],
  ['&minus;1', -1],
])('at advantage %s the handout pulls with CISPO by the rule of its caption', (name, advantage) => {
  const pulls = [0.5, 0.9, 1, 1.1, 1.5, 4].map((ratio) => signed(advantage * Math.min(ratio, 1.28)));
  expect(HANDOUT['0.2']).toContain([`CISPO, advantage ${name}`, ...pulls].join('</td><td>'));
});

const transformed = async (html: string, filename = 'demo/lessons/index.html'): Promise<string> => {
  const { transformIndexHtml } = lessonStills() as unknown as {
    transformIndexHtml: { handler: (html: string, context: { filename: string }) => Promise<string> };
  };
  return transformIndexHtml.handler(html, { filename });
};

test("the instructor's page has the results of three seeds", () => {
  const results = readFileSync('docs/lab/results.md', 'utf8');
  const seeds = [1, 2, 3].map((seed) =>
    new RegExp(`\\| runs/seed-${seed} \\| ([\\d.]+) \\| ([\\d.]+) \\|`).exec(results)!,
  );
  const list = ([one, two, three]: string[]) => `${one}, ${two} and ${three}`;
  const html = readFileSync('demo/lessons/teach/index.html', 'utf8').replaceAll(/\s+/g, ' ');
  expect(html).toContain(
    `solved ${list(seeds.map(([, before]) => before))} of 256 held-out problems before training, and ${list(seeds.map(([, , after]) => after))} after`,
  );
});

test('contents and schedule name the lessons of the folder, and no other', async () => {
  const folders = readdirSync('demo/lessons').filter((name) => /^\d-/.test(name) && name in lessonPages());
  expect(lessons().map(({ folder }) => folder)).toEqual(folders.toSorted());
  const list = await transformed('<!-- lessons -->');
  for (const { folder, title } of lessons()) expect(list).toContain(`<a href="./${folder}/index.html">${title}</a>`);
  const table = await transformed(
    '<!-- schedule\n8 | | Start\n20 | 1 | Lesson one\n30 | 9 | Lesson nine\n70 | 1 7 | Both\n5 | | End\n-->',
  );
  expect([...table.matchAll(/<tr><td>(.*?)<\/tr>/g)].map(([, row]) => row.replaceAll(/<[^>]*>/g, ' '))).toEqual([
    '0:00  8 min  Start ',
    '0:08  20 min  Lesson one ',
    '0:28  70 min  Both ',
    '1:38  5 min  End ',
  ]);
});

test('each lesson links the next, the last one the questions, and no other page has such a link', async () => {
  const linked = async (folder: string) =>
    /Next: <a href="([^"]+)"/.exec(await transformed('<main></main>', `demo/lessons/${folder}/index.html`))?.[1];
  const folders = lessons().map(({ folder }) => folder);
  expect(await Promise.all(folders.map(linked))).toEqual([
    ...folders.slice(1).map((folder) => `../${folder}/index.html`),
    '../index.html#questions',
  ]);
  expect(await linked('teach')).toBeUndefined();
});

test('pages that are open at once keep the progress of each other, also without storage', async () => {
  const stored = new Map<string, string>();
  const listeners: [string, (event: object) => void][] = [];
  const storage = {
    getItem: (key: string) => stored.get(key) ?? null,
    setItem: (key: string, value: string) => void stored.set(key, value),
    removeItem: (key: string) => void stored.delete(key),
  };
  vi.stubGlobal('localStorage', storage);
  vi.stubGlobal('addEventListener', (...of: (typeof listeners)[number]) => void listeners.push(of));
  const open = async (page: string): Promise<typeof progressOf> =>
    import(/* @vite-ignore */ `${resolve('demo/lessons/kit/progress.ts')}?page=${page}`);
  const [a, b] = [await open('a'), await open('b')];
  a.keep('solved', '1.1', true);
  b.keep('solved', '2.1', true);
  expect((await open('c')).progress.value.solved).toEqual({ '1.1': true, '2.1': true });
  expect(a.progress.value.solved).toEqual({ '1.1': true });
  for (const [type, tell] of listeners) if (type === 'pageshow') tell({ persisted: true });
  expect(a.progress.value.solved).toEqual({ '1.1': true, '2.1': true });
  b.forget();
  for (const [type, tell] of listeners) if (type === 'storage') tell({});
  expect(a.progress.value.solved).toEqual({});
  vi.stubGlobal('localStorage', undefined);
  a.keep('solved', '1.1', true);
  a.keep('solved', '3.1', true);
  vi.unstubAllGlobals();
  expect(a.progress.value.solved).toEqual({ '1.1': true, '3.1': true });
});
