/**
 * Tests engines in pages of headless Chromium, which `webgrpo train --in chromium` and `webgrpo/playwright` use, with the scripted engine
 * in the page's worker. The real engine: test/gpu/trainCommand.node.test.ts and, with the packed package and --full, test/e2e/pack.test.ts.
 */

import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Browser, chromium } from '@playwright/test';
import * as Comlink from 'comlink';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { webGpuLaunchOptions } from '../../src/cli/chromium.mjs';
import { decode, encode, MessageLink } from '../../src/cli/chromium/messageLink.ts';
import { trainInPage } from '../../src/cli/chromium/trainInPage.ts';
import { openPageEngine } from '../../src/cli/chromium/pageEngine.ts';
import { initWeights } from '../../src/model/params.ts';
import { judgeCourse } from '../../src/report/course.ts';
import { webgrpo } from '../commandLine.ts';
import { SCRIPTED_CONFIG } from '../scripted/model.ts';
import { gsm8kTokenizer } from '../gsm8kTokenizer.ts';

vi.mock('../../src/engine.worker.ts?inline-worker', () => import('../scripted/engine.worker.ts?inline-worker'));

/** Time limit of a test in milliseconds, long enough for a machine that runs many other programs. */
const GUARD = 120_000;
vi.setConfig({ testTimeout: GUARD, hookTimeout: GUARD });

const SETTINGS = [
  ...['trainer.totalTrainingSteps=3', 'trainer.testFreq=0', 'data.valMaxSamples=2', 'trainer.valBeforeTrain=false'],
  ...['data.trainBatchSize=2', 'actor.ppoMiniBatchSize=2', 'rollout.n=4'],
];
const defaultLocalDir = mkdtempSync(join(tmpdir(), 'webgrpo-page-'));
const argumentsOf = (name: string) => [
  ...['train', 'configs/gsm8k-tool.yaml', `name=${name}`, `trainer.defaultLocalDir=${defaultLocalDir}`],
  ...SETTINGS,
];
describe('webgrpo train --in chromium', () => {
  test('another place, and a second device, are refused', async () => {
    const [other, split] = [
      await webgrpo([...argumentsOf('other'), '--in', 'firefox']),
      await webgrpo([
        ...argumentsOf('split'),
        '--in',
        'chromium',
        'trainer.placement=split',
        'trainer.pipeline=one-step-off',
      ]),
    ];
    expect([other.status, other.said.at(-1)]).toEqual([
      2,
      '--in is "firefox"; allowed: chromium. Leave it out to train in Node.',
    ]);
    expect([split.status, split.said]).toEqual([
      2,
      expect.arrayContaining([expect.stringMatching(/^trainer\.placement is "split", but a page of Chromium has one/)]),
    ]);
  });
});

describe('in a page', () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await chromium.launch(webGpuLaunchOptions());
  });
  afterAll(() => browser.close());

  const { tokenizer: tokenizerJson, config: tokenizerConfigJson } = gsm8kTokenizer;
  const config = SCRIPTED_CONFIG;
  const spec = {
    ...{ engine: 'wgsl' as const, config, weights: initWeights(config, 1), tokenizerJson, tokenizerConfigJson },
    ...{ maxTokenLen: 64, maxPositions: 64 },
  };

  test.each(['closed', 'left', 'crashed'])('an engine whose page is %s ends every call with an error', async (how) => {
    const page = await browser.newPage();
    const engine = await openPageEngine(page, spec);
    expect((await engine.model.exportWeights()).size).toBeGreaterThan(0);
    if (how === 'closed') await page.close();
    else await page.goto(how === 'left' ? 'about:blank' : 'chrome://crash').catch(() => undefined);
    expect((await engine.lost).name).toBe('DeviceLostError');
    await expect(engine.model.exportWeights()).rejects.toThrow(/^The engine worker died: The page of the engine was/);
    engine.destroy();
  });

  test('the fixture trains two steps in the page, and attaches its report and its lines', async () => {
    const page = await browser.newPage();
    const attached: Record<string, string> = {};
    const info = {
      outputPath: (...parts: string[]) => join(defaultLocalDir, 'results', ...parts),
      attach: async (name: string, { path = '', body = '' }: { path?: string; body?: string | Buffer } = {}) => {
        attached[name] = path || String(body);
      },
    };
    const overrides = [...SETTINGS, 'trainer.totalTrainingSteps=2'];
    const run = await trainInPage(page, info, 'configs/gsm8k-tool.yaml', { overrides });
    expect(run.history.map((line) => line['training/global_step'])).toEqual([1, 2]);
    expect(run.history.map((line) => line['critic/score/mean'])).toEqual([expect.any(Number), expect.any(Number)]);
    expect(run.summary).toMatchObject({ steps: 2 });
    expect(run.folder).toBe(info.outputPath('runs', 'gsm8k-tool'));
    expect(attached['report.html']).toBe(join(run.folder, 'report.html'));
    expect(attached['train.log']).toBe(`${run.log.join('\n')}\n`);
    // If the page cannot open an engine, the run ends with the error, and the log lines so far are attached to the test.
    await page.close();
    await expect(trainInPage(page, info, 'configs/gsm8k-tool.yaml', { overrides })).rejects.toThrow();
    expect(attached['train.log']).not.toBe(`${run.log.join('\n')}\n`);
  });
});

describe('messages between page and Node', () => {
  const refuse = () => {
    throw new Error('no port');
  };
  test.each([
    [{ a: [1.5, -0, NaN, Infinity, -Infinity, null, undefined, true, 'x\u{1f600}'], b: undefined }],
    [
      new Map<unknown, unknown>([
        ['w', { data: Float32Array.of(1, NaN, 0.1) }],
        [Int8Array.of(-1), new Set([1, 'a'])],
      ]),
    ],
    [
      {
        empty: new Uint8Array(0),
        odd: new Uint8Array([1, 2, 3]),
        wide: Float64Array.of(1 / 3),
        big: BigUint64Array.of(9n),
      },
    ],
    [[new ArrayBuffer(3), new Float32Array(4).fill(2).subarray(1, 3), Uint8ClampedArray.of(255)]],
  ])('%o is received as it was sent', (message) => {
    const { message: received, transfer } = decode(encode(message, refuse), refuse);
    expect(received).toStrictEqual(message);
    expect(new Set(transfer).size).toBe(transfer.length);
  });

  test.each([[() => 1], [Symbol('x')], [1n], [new Date(0)], [{ deep: [/x/] }]])('%o is refused', (message) => {
    expect(() => encode(message, refuse)).toThrow(TypeError);
  });

  test('callbacks of both sides are called, and their ports close with the link', async () => {
    const links: MessageLink[] = [];
    const sides = [new MessageChannel(), new MessageChannel()];
    for (const [i, { port1 }] of sides.entries()) {
      links.push(
        new MessageLink({
          send: (bytes) => links[1 - i].deliver(bytes),
          receive: ({ message, transfer }) => port1.postMessage(message, transfer),
          firstPort: i === 0 ? 1 : 2,
        }),
      );
      port1.onmessage = ({ data }) => links[i].post(data);
    }
    const [near, far] = sides.map(({ port2 }) => port2);
    Comlink.expose({ twice: async (call: (n: number) => Promise<number>) => (await call(1)) + (await call(2)) }, far);
    const remote = Comlink.wrap<{ twice(call: (n: number) => number): number }>(near);
    expect(await remote.twice(Comlink.proxy((n: number) => 10 * n))).toBe(30);
    expect(await Promise.all([1, 2].map((n) => remote.twice(Comlink.proxy(() => n))))).toEqual([2, 4]);
    links.forEach((link) => link.close());
    sides.forEach(({ port1 }) => port1.close());
  });
});

describe('toLearn', () => {
  const history = [0.2, 0.25, 0.5, 0.9, 0.7].map((score, i) => ({ 'training/global_step': i + 1, score }));

  test('passes a rise to the value, and shows the course', () => {
    expect(judgeCourse(history, { metric: 'score', atLeast: 0.7 }).pass).toBe(true);
    expect(judgeCourse(history, { metric: 'score', atLeast: 0.8, last: 2 }).pass).toBe(true);
    const { pass, reason } = judgeCourse(history, { metric: 'score', atLeast: 0.85, last: 2 });
    expect(pass).toBe(false);
    expect(reason.split('\n')).toEqual([
      'score was 0.2 at first, and the mean of its last 2 values is 0.8. Expected: a rise to at least 0.85.',
      '  step 1         0.2  #',
      '  step 2        0.25  ####',
      `  step 3         0.5  ${'#'.repeat(18)}`,
      `  step 4         0.9  ${'#'.repeat(40)}`,
      `  step 5         0.7  ${'#'.repeat(29)}`,
    ]);
  });

  test('fails a run that was as good at its start', () => {
    const flat = history.map((line) => ({ ...line, score: 1 }));
    expect(judgeCourse(flat, { metric: 'score', atLeast: 0.5 }).pass).toBe(false);
    expect(judgeCourse([...history, { ...history[4], score: NaN }], { metric: 'score', atLeast: 0 }).pass).toBe(false);
  });

  test('a run that should not have learned says so', () => {
    const { pass, reason } = judgeCourse(history, { metric: 'score', atLeast: 0.7 }, true);
    expect(pass).toBe(true);
    expect(reason).toMatch(
      /^score was 0\.2 at first, and its last value is 0\.7\. Expected: no rise to at least 0\.7\.\n/,
    );
  });

  test.each([[NaN], [undefined], ['0.7'], [null]])('atLeast: %s is an error, also for "not"', (atLeast) => {
    expect(() => judgeCourse(history, { metric: 'score', atLeast: atLeast as number })).toThrow(
      `toLearn: atLeast is ${String(atLeast)}, not a number. Set it to what score must reach.`,
    );
  });

  test('a promise of a run is an error', () => {
    const { history: missing } = Promise.resolve({ history }) as unknown as { history: [] };
    expect(() => judgeCourse(missing, { metric: 'score', atLeast: 0 })).toThrow('toLearn got no run.');
  });

  test('a metric that the run lacks is an error, also for "not"', () => {
    expect(() => judgeCourse(history, { metric: 'scor', atLeast: 0 })).toThrow(
      'The run has no metric "scor" in its 5 lines. Did you mean "score"?',
    );
    expect(() => judgeCourse([], { metric: 'score', atLeast: 0 })).toThrow('no metric "score" in its 0 lines.');
    expect(() => judgeCourse(history, { metric: 'score', atLeast: 0, last: 5 })).toThrow('but the run has 5.');
  });
});
