/** Tests the reports of the command line, opened from disk: what they show, and that text from a run stays text (is not executed). */

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, type Page, test } from '@playwright/test';
import type { ReplayReport } from '../../src/report/replay/replayReport.ts';
import { expectNoViolations } from './axe.ts';
import { expectNoSideScroll, isFull, testInFull } from './demo.ts';

const PASS = 'val-core/t/acc/mean@1';
const HOSTILE = '</script><script>document.title = "broken"</script><img src=x onerror="document.title = 1">';

let folder: string;
let errors: string[];

const write = (name: string, lines: unknown[]) =>
  writeFileSync(join(folder, name), lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
const webgrpo = (...args: string[]) =>
  execFileSync(process.execPath, ['scripts/webgrpo.mjs', ...args], { stdio: ['ignore', 'pipe', 'pipe'] });

test.beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'webgrpo-report-'));
  for (const name of ['rollouts', 'profile']) mkdirSync(join(folder, name));
  writeFileSync(
    join(folder, 'config.yaml'),
    `data: { maxResponseLength: 64 }\nrollout: { maxNumSeqs: 8, multiTurn: { toolTimeoutS: 10 } }\n# ${HOSTILE}\n`,
  );
  write('metrics.jsonl', [
    { 'training/global_step': 0, [PASS]: 0.25 },
    { 'training/global_step': 1, 'critic/score/mean': 0.5, 'timing_s/step': 2 },
    { 'training/global_step': 2, 'critic/score/mean': 0.75, 'timing_s/step': 2, [PASS]: 0.5 },
  ]);
  const messages = [
    { role: 'user', content: 'q' },
    { role: HOSTILE, content: 'r' },
    { role: 'assistant', content: HOSTILE },
  ];
  const facts = { step: 1, group: 0, problem: 'p', answer: '4', score: 1, acc: 1, stopReason: 'completed' };
  const hostile = { problem: HOSTILE, answer: HOSTILE, stopReason: HOSTILE, extra: { [HOSTILE]: 1 } };
  write('rollouts/step-1.jsonl', [
    {
      ...facts,
      messages,
      numTurns: 1,
      numToolCalls: 0,
      responseTokens: 3,
      advantage: -0.25,
      turnRewards: [0.5, 0.5],
      extra: { brief: 1 },
    },
    { ...facts, ...hostile, messages: [], numTurns: 1, numToolCalls: 0, responseTokens: 3, advantage: 0 },
  ]);
  const sample = { problem: 'p', stop: '<b>', turns: 1, tokens: 20, toolCalls: 0, score: 1 };
  const events = [
    ['decode', 0, 0, 8, 4],
    ['sample', 0, 8, 10, 1],
  ];
  write('profile/step-1.jsonl', [
    { step: 1, phases: [['generate', 0, 100]] },
    ...[1, 2, 3, 4, 5].map((n) => ({ id: `0.${n}`, ...sample, events })),
  ]);
  webgrpo('report', folder);
  if (isFull) webgrpo('profile', folder);
});

test.afterAll(() => rmSync(folder, { recursive: true, force: true }));

test.beforeEach(async ({ page }) => {
  errors = [];
  page.on('pageerror', (error) => errors.push(error.message));
  page.on('request', (request) => {
    if (!request.url().startsWith('file:')) errors.push(`loads ${request.url()}`);
  });
  await page.setViewportSize({ width: 375, height: 800 });
});

/** Opens a page of the folder. The page must not fail, load anything, or be wider than a phone's screen. */
async function open(page: Page, name: string): Promise<void> {
  await page.goto(`file://${join(folder, name)}`);
  await expect(page.locator('h1')).toBeVisible();
  await expectNoViolations(page, name);
  await page.emulateMedia({ colorScheme: 'dark' }); // curves are redrawn
  await expectNoSideScroll(page);
  await expect(page.locator('script')).toHaveCount(2);
  await expect(page.locator('img')).toHaveCount(0);
  expect(errors).toEqual([]);
}

test('report.html has the summary, the curves and the rollouts of a run', async ({ page }) => {
  await open(page, 'report.html');
  await expect(page.locator('pre').first()).toContainText('pass@1                     0.250     0.500');
  await expect(page.locator('figcaption')).toHaveText(['held-out pass@1', 'reward']);
  await expect(page.locator('.chart canvas')).toHaveCount(2);
  await expect(page.locator('.u-legend').first()).toContainText('sampled');
  await expect(page.locator('article header').first()).toHaveText(
    'reward 1.00 - advantage -0.25 - by turn 0.50, 0.50 - brief 1 - answer 4 - 0 tool calls - 3 tokens - completed - p',
  );
  await expect(page.locator('.message.assistant span')).toHaveText(HOSTILE);
  await expect(page.locator('.message b').nth(1)).toHaveText(HOSTILE);
  const inPage: unknown = JSON.parse((await page.locator('#report').textContent())!);
  expect(inPage).toEqual(JSON.parse(readFileSync(join(folder, 'report.json'), 'utf8')));

  await page.evaluate(() => {
    const script = document.createElement('script');
    script.textContent = 'document.title = "broken"';
    document.body.append(script);
  });
  await expect(page, 'a script that got into a report would not run').not.toHaveTitle('broken');
});

testInFull('profile.html shows how the time was spent', async ({ page }) => {
  await open(page, 'profile.html');
  await expect(page.locator('body')).toContainText('1 step, 5 samples.');
  await expect(page.locator('h2')).toHaveCount(9);
  await expect(page.locator('svg')).toHaveCount(5);
  await expect(page.locator('rect title', { hasText: 'sample, turn 0: 2 ms, GPU 1 ms' })).toHaveCount(5);
  await expect(page.locator('body')).toContainText('alternate');
  await expect(page.locator('li', { hasText: '<b>: 5' })).toHaveCount(1);
  expect(await page.locator('body').innerHTML()).not.toMatch(/NaN|undefined/);
});

/** Writes report.html with another report in it. */
function writeWith(name: string, report: object): void {
  const json = JSON.stringify(report).replaceAll('<', '\\u003c');
  const html = readFileSync(join(folder, 'report.html'), 'utf8');
  const data = /(<script id="report" type="application\/json">).*?(<\/script>)/s;
  writeFileSync(
    join(folder, name),
    html.replace(data, (_, start: string, end: string) => start + json + end),
  );
}

test('replay.html colours tokens by their gradient, by loss side by side', async ({ page }) => {
  const loss = (name: string, norm: number) => ({
    ...{ name, lossMode: name, advEstimator: 'grpo', lossAggMode: 'token-mean' },
    metrics: { 'actor/pg_loss': -0.5, 'actor/grad_norm': norm },
  });
  const numbers = (grad: number[], clipped: number[]) => {
    const same = (value: number) => grad.map(() => value);
    return { ratio: same(1.25), advantage: same(1), weight: same(0.1), grad, clipped };
  };
  const report: ReplayReport = {
    kind: 'replay',
    title: HOSTILE,
    notes: ['One note.'],
    charts: [{ title: 'actor/grad_norm', steps: [1, 2], series: [{ label: 'run', values: [1, 2] }] }],
    steps: [
      {
        ...{ step: 2, weights: 'checkpoints/step-1', samples: 4, logged: { 'actor/grad_norm': 2 } },
        losses: [loss('run (grpo)', 2), loss(HOSTILE, 0)],
        cosines: [
          [1, null],
          [null, null],
        ],
        shown: [
          {
            ...{ sample: 3, group: 1, problem: HOSTILE, score: null },
            tokens: [
              { text: HOSTILE, trained: true },
              { text: ' tool', trained: false },
              { text: ' b', trained: true },
            ],
            losses: [numbers([-0.2, 0, 0.1], [0, 0, 0]), numbers([0, 0, 0], [1, 0, 2])],
          },
        ],
      },
    ],
    rewards: [],
  };
  writeWith('replay.html', report);
  await open(page, 'replay.html');
  await expect(page.locator('.cells tr', { hasText: 'actor/grad_norm' })).toHaveText('actor/grad_norm2.002.000.00');
  await expect(page.locator('.cells tr', { hasText: 'cosine with run' })).toHaveText('cosine with run (grpo)1.00-');
  await expect(page.locator('.chart canvas')).toHaveCount(1);
  const tokens = page.locator('article .token');
  await expect(tokens).toHaveCount(6);
  await expect(tokens.first()).toHaveText(HOSTILE);
  await expect(tokens.first()).toHaveAttribute(
    'title',
    'd loss / d logp \u22120.20, weight 0.10, advantage 1.00, ratio 1.25',
  );
  const colours = await tokens.evaluateAll((all) => all.map((token) => getComputedStyle(token).backgroundColor));
  expect(new Set(colours).size).toBe(3); // more likely, less likely, and equal
  expect(colours.filter((colour) => colour === colours[1])).toHaveLength(4);
  await expect(page.locator('article .token.clipped')).toHaveCount(2);
  await expect(page.locator('article .token.untrained')).toHaveCount(2);
});

test('compare.html hides an algorithm in every chart', async ({ page }) => {
  const history = (after: number) => [
    { 'training/global_step': 0, [PASS]: 0.25 },
    { 'training/global_step': 2, [PASS]: after, 'actor/entropy': 0.5, 'timing_s/step': 60 },
  ];
  const { resolveTrainConfig } = await import('../../src/grpo/config/resolve.ts');
  const { comparisonReport } = await import('../../src/report/comparison.ts');
  const config = resolveTrainConfig({ name: 'r', model: { path: 'm' } });
  const all = [
    { algorithm: HOSTILE, config, settings: 'vanilla', runs: [{ seed: 1, history: history(0.9) }] },
    { algorithm: 'gspo', config, settings: 'gspo', runs: [{ seed: 1, history: history(0.5) }] },
  ];
  const report = comparisonReport({ title: 'two', about: 'of a test', all, target: 0.85, config: 'x: 1' });
  writeWith('compare.html', report);
  await open(page, 'compare.html');
  await expect(page.locator('tbody tr')).toHaveCount(2);
  await expect(page.locator('tbody td').first()).toHaveText(HOSTILE);
  await expect(page.locator('.chart canvas')).toHaveCount(2);
  const pictures = () =>
    page.locator('.chart canvas').evaluateAll((all) => all.map((canvas) => (canvas as HTMLCanvasElement).toDataURL()));
  const before = await pictures();
  const button = page.getByRole('button', { name: 'gspo' });
  await button.click();
  await expect(button).toHaveAttribute('aria-pressed', 'false');
  await expect(async () => {
    const after = await pictures();
    expect(after.map((picture, i) => picture === before[i])).toEqual([false, false]);
  }).toPass();
});
