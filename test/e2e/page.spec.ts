/** Tests the page around a run: messages about a missing GPU, bad settings and a lost GPU; pause, resume, stop. */

import { readFileSync } from 'node:fs';
import { expect, type Page, type Request } from '@playwright/test';
import { writeZip } from '../../demo/storage/zip.ts';
import {
  address,
  encodeResult,
  expectInk,
  expectKept,
  expectPoints,
  expectState,
  expectStep,
  isFull,
  onlyBuilt,
  openDrawer,
  openPage,
  test,
  testIf,
  testInFull,
  TINY,
} from './demo.ts';
import { downloadedLines } from './savedLines.ts';

testInFull(
  "a software adapter is named prominently; another algorithm uses its own clip range, not the file's",
  async ({ page }) => {
    await openPage(page);
    const adapter = page.locator('#adapter');
    await expect(adapter).toHaveAttribute('data-software', /true|false/);
    await expect(adapter).not.toBeEmpty();
    const isSoftware = (await adapter.getAttribute('data-software')) === 'true';
    await expect(page.getByText('Software adapter:')).toHaveCount(isSoftware ? 1 : 0);

    const summary = page.locator('.summary');
    await expect(summary).toContainText('clip 0.2 / 0.28');
    await page.getByText('More settings').click();
    await page.getByLabel('Algorithm').selectOption('gspo');
    await expect(summary).toContainText('loss gspo, seq-mean-token-mean');
    await expect(summary).toContainText('clip 0.0003 / 0.0004');
    await page.getByLabel('Algorithm').selectOption('grpo');
    await page.getByLabel('Loss', { exact: true }).selectOption('cispo');
    await expect(summary).toContainText('loss cispo');
    await page.getByRole('textbox', { name: 'Steps' }).fill('ten');
    await expect(page.getByRole('alert')).toContainText('Steps is "ten"');
  },
);

test('until Start can be pressed the page requests only what its HTML names, and a recipe', async ({ page }) => {
  onlyBuilt();
  await page.addInitScript(() => {
    const isPressable = () => document.getElementById('start')?.ariaDisabled === 'false';
    const observer = new MutationObserver(() => {
      if (!isPressable()) return;
      observer.disconnect();
      Object.assign(globalThis, { pressableMs: performance.now() });
    });
    observer.observe(document, { subtree: true, childList: true, attributeFilter: ['aria-disabled'] });
  });
  await openPage(page, TINY);
  await expect(page.locator('#rollouts .try').first()).toBeVisible(); // the last part that is loaded without a click
  const html = await (await page.request.get('/')).text();
  const pressableMs = await page.evaluate<number>('pressableMs');
  const requested = await page.evaluate(() =>
    performance
      .getEntriesByType('resource')
      .map(({ name, startTime }) => ({ file: name.split('/').at(-1)!, startTime })),
  );
  const before = requested.filter(({ startTime }) => startTime <= pressableMs);
  expect(requested.length - before.length, 'files that are requested later').toBeGreaterThan(10);
  const others = before.flatMap(({ file }) => (html.includes(file) ? [] : [file]));
  expect(others).toEqual([expect.stringMatching(/^gsm8k-tool-.*\.yaml$/)]);
});

/** Lets the test decide when a time limit of the page passes: it calls `passLimit()` in the page. */
const holdLimit = (page: Page, limitMs: number) =>
  page.addInitScript((held) => {
    const { setTimeout } = window;
    const withoutLimit = (then: () => void, ms?: number) => {
      if (ms !== held) return setTimeout(then, ms);
      Object.assign(globalThis, { passLimit: then });
      return 0;
    };
    window.setTimeout = withoutLimit as typeof window.setTimeout;
  }, limitMs);

test('a browser that refuses an adapter, or never answers, is reported after 10 seconds', async ({ page }) => {
  await holdLimit(page, 10_000);
  await page.addInitScript(() => {
    const refused = Promise.reject(new Error('GPU process crashed.'));
    refused.catch(() => {});
    const adapterFound = location.hash === '#refused' ? refused : new Promise<never>(() => {});
    GPU.prototype.requestAdapter = () => adapterFound;
    Object.assign(globalThis, { adapterFound });
  });
  await openPage(page);
  await page.getByRole('button', { name: 'Start' }).click();
  await page.evaluate('passLimit()');
  await expectState(page, 'no-gpu');
  await expect(page.getByText('The browser did not answer within 10 seconds when asked for a GPU.')).toBeVisible();
  await page.goto('about:blank');
  await page.goto('/#refused');
  await expectState(page, 'no-gpu');
  await expect(page.getByText('The browser refused to name a GPU: GPU process crashed. Restart')).toBeVisible();
});

/** Opens the page under another machine's name, without TLS. Returns the errors of its scripts. */
async function serveOverHttp(page: Page, baseURL: string | undefined): Promise<string[]> {
  const errors: string[] = [];
  page.on('pageerror', (error) => errors.push(error.message));
  await page.route('http://teacher.test/**', async (route) => {
    const { pathname, search } = new URL(route.request().url());
    await route.fulfill({ response: await route.fetch({ url: `${baseURL}${pathname}${search}` }) });
  });
  await page.goto('http://teacher.test/');
  await expectState(page, 'no-gpu');
  return errors;
}

test('over http from another machine, the page says why it cannot train', async ({ page, baseURL }) => {
  const errors = await serveOverHttp(page, baseURL);
  await expect(page.getByText('loaded over plain http from another machine')).toBeVisible();
  await expect(page.getByRole('region', { name: 'Recorded run' })).toBeVisible();
  expect(errors).toEqual([]);
  await page.unrouteAll({ behavior: 'ignoreErrors' }); // parts that are still being loaded
});

testInFull('over http from another machine, runs are opened and links are read', async ({ page, baseURL }) => {
  const errors = await serveOverHttp(page, baseURL);
  await test.step('a run is opened from its .zip, and a result is copied by hand', async () => {
    const run = new Map([
      ['config.yaml', readFileSync('configs/gsm8k-tool.yaml')],
      ['metrics.jsonl', Buffer.from('{"training/global_step":1,"critic/score/mean":0.5}\n')],
    ]);
    const zip = { name: 'run.zip', mimeType: 'application/zip', buffer: Buffer.from(writeZip('run', run)) };
    await openDrawer(page, 'runs');
    await page.getByLabel('Open .zip').setInputFiles(zip);
    await expect(page.locator('.run-list > li')).toContainText('1 of 80 steps');
    const line = { 'training/global_step': 1, 'val-core/sums/acc/mean@1': 0.5 };
    const [start, lines] = [
      { ...line, 'training/global_step': 0 },
      { adapter: 'x', seconds: 1, trainedTokens: 1 },
    ];
    await page.goto('about:blank');
    await page.goto(`http://teacher.test/#r=${await encodeResult({ history: [start, line], ...lines, changes: [] })}`);
    await page.getByRole('button', { name: 'Copy text' }).click();
    await expect(page.getByText('This browser does not let a page copy that.')).toBeVisible();
  });
  await test.step('a room link says the same, and cannot be joined', async () => {
    await page.goto(`http://teacher.test/?room=ws://10.0.0.9:9#code=SU${'A'.repeat(56)}`);
    await expect(page.locator('#notices')).toContainText('loaded over plain http from another machine');
    await expect(page.getByRole('button', { name: 'Join' })).toBeDisabled();
  });
  expect(errors).toEqual([]);
  await page.unrouteAll({ behavior: 'ignoreErrors' }); // parts that are still being loaded
});

/** Policies of a host, and what becomes of an applied rule, which runs in QuickJS (wasm) in a worker made from a blob. */
const POLICIES: Readonly<Record<string, RegExp>> = {
  "connect-src 'self'": /^"?reward length/i,
  "default-src 'self'": /worker\. The host of the page must add blob: to worker-src\.$/,
  "default-src 'self'; worker-src 'self' blob:":
    /WebAssembly\. The host of the page must add 'wasm-unsafe-eval' to script-src\.$/,
  "default-src 'self'; worker-src 'self' blob:; script-src 'self' 'wasm-unsafe-eval'": /^"?reward length/i,
};

for (const [policy, said] of Object.entries(POLICIES))
  testInFull(
    `under a host's policy a bad setting can be corrected, the page trains, and rules work or name what the policy lacks: ${policy}`,
    async ({ page }) => {
      if (policy.startsWith('default')) onlyBuilt(); // the development server writes styles into the page
      await page.route(/\/(\?.*)?$|\.js$/, async (route) => {
        const response = await route.fetch();
        const headers = { ...response.headers(), 'content-security-policy': policy };
        await route.fulfill({ response, headers });
      });
      await page.goto(address({ ...TINY, lr: -1 }));
      await expect(page.getByRole('alert')).toContainText('Learning rate is -1; allowed:');
      await expect(page.getByRole('button', { name: 'Start' })).toBeDisabled();
      await page.getByLabel('Learning rate').fill('1e-4');
      await page.getByRole('button', { name: 'Start' }).click();
      await expectState(page, 'done');
      await page.getByRole('button', { name: /^Change reward, loss/ }).click();
      await page.getByLabel('Preset').selectOption('reward length');
      await page.getByRole('button', { name: 'Apply' }).click();
      await expect(page.locator('#rules .standing')).toHaveText(said);
      const numbers = page.locator('#rules .cm-gutters');
      await expect(numbers, 'the editor has its style').toHaveCSS('display', 'flex');
    },
  );

test('Start can be pressed before the GPU has answered: the run starts afterwards, or reports that there is no GPU', async ({
  page,
  engine,
}) => {
  engine.upTo(0);
  await page.addInitScript(() => {
    Object.assign(globalThis, { adapterFound: new Promise((answer) => Object.assign(globalThis, { answer })) });
  });
  const answer = (found: boolean) => page.evaluate(`answer(${found})`);
  for (const found of [true, false]) {
    await openPage(page, TINY);
    await expect(page.locator('#adapter')).toHaveText('Looking for a GPU...');
    await page.getByRole('button', { name: 'Start' }).click();
    await expectState(page, 'loading');
    expect(page.workers()).toEqual([]);
    await answer(found);
    await expectState(page, found ? 'running' : 'no-gpu');
  }
  await expect(page.getByText('chrome://gpu')).toBeVisible();
  await expect(page.getByRole('button', { name: 'Start' })).toBeDisabled();
});

test('the page starts while it warms up, pauses, resumes, stops after a step, and immediately while it loads', async ({
  page,
  engine,
}) => {
  engine.upTo(0);
  engine.upTo(0, 'load');
  await holdLimit(page, 1000); // of idleness, before the page times a step of this size: Start must not wait for it
  const sizes = { n: 32, 'data.maxResponseLength': 160, 'rollout.maxNumSeqs': 64 };
  await openPage(page, { ...TINY, ...sizes, steps: 5 });
  await engine.held('load');
  await page.getByRole('button', { name: 'Start' }).click();
  await expectState(page, 'loading');
  engine.upTo(Infinity, 'load');
  await expectState(page, 'running');
  await expect(page.locator('#loss')).toHaveText('Shown after the first step.');
  engine.upTo(1);
  await expectPoints(page, 'reward', 1);
  await expect(page.locator('#loss')).toContainText('The policy loss is');

  await engine.reached(2);
  await page.getByRole('button', { name: 'Pause' }).click();
  engine.open();
  await expectState(page, 'paused');
  await expectStep(page, 2);

  engine.upTo(2);
  await page.getByRole('button', { name: 'Resume', exact: true }).click();
  await engine.reached(3);
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  engine.open();
  await expectState(page, 'done');
  await expect(page.getByText('Stopped after 3 steps.')).toBeVisible();

  engine.upTo(0, 'load');
  await page.getByLabel('Tries per problem').fill('4'); // other sizes need another engine
  await page.getByRole('button', { name: 'New run' }).click();
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await expectState(page, 'done');
  await expect(page.getByText('Stopped during a step.')).toBeVisible();
});

testInFull('a stop that is requested before the run exists takes effect', async ({ page }) => {
  let arrive = () => {};
  const asked = new Promise<void>((resolve) => (arrive = resolve));
  await page.route(/\/run(\.ts|-)/, async (route) => {
    await asked;
    await route.continue();
  });
  await openPage(page, TINY);
  await page.getByRole('button', { name: 'Start' }).click();
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  arrive();
  await expectState(page, 'done');
  await expect(page.getByText('Stopped during a step.')).toBeVisible();
});

testInFull('an engine that dies repeatedly is reported, and the run can be continued', async ({ page, engine }) => {
  engine.upTo(1);
  // The page waits for some seconds before it opens another engine. Here these waits take no time.
  await page.addInitScript(() => {
    const { setTimeout } = window;
    const withoutSeconds = (then: () => void, ms = 0) => setTimeout(then, ms < 1000 || ms > 5000 ? ms : 0);
    window.setTimeout = withoutSeconds as typeof window.setTimeout;
  });
  await openPage(page, { ...TINY, steps: 3, 'trainer.saveFreq': 1 });
  await page.getByRole('button', { name: 'Start' }).click();
  await expectKept(page, 1);
  for (let died = 0; died < 4; died++) {
    await expect.poll(() => page.workers().length).toBe(1);
    const [worker] = page.workers();
    const closed = worker.waitForEvent('close');
    await worker.evaluate('setTimeout(() => nothing())');
    await closed;
  }
  await expectState(page, 'failed');
  await expect(page.getByText('The engine stopped.')).toBeVisible();
  await expect.poll(() => page.workers().length).toBe(0);
  await expect(page.locator('.offer')).toHaveText('The run is saved after step 1.ResumeDiscard');
  engine.open();
  await page.locator('.offer').getByRole('button', { name: 'Resume' }).click();
  await expectState(page, 'done');
  await expectStep(page, 3);
});

test('an engine whose script is missing, broken, silent or throws is an error, and Stop ends the wait for it', async ({
  page,
}) => {
  await holdLimit(page, 30_000);
  const script = { contentType: 'text/javascript' };
  await page.route(/engine\.worker/, (route) => route.fulfill({ status: 404, body: '' }));
  await openPage(page, TINY);
  const notLoaded = /A part of this page is missing\.|Uncaught SyntaxError/;
  const answers = [
    [{ ...script, body: 'throw new Error("no good");' }, 'The engine stopped. Uncaught Error: no good.'],
    [{ status: 404, body: '' }, notLoaded],
    [{ ...script, body: 'const = 1;' }, notLoaded],
    [{ ...script, body: 'import "./gone.js";' }, notLoaded],
  ] as const;
  for (const [answer, said] of isFull ? answers : answers.slice(0, 2)) {
    await page.route(/engine\.worker/, (route) => route.fulfill(answer));
    await page.getByRole('button', { name: /^(Start|New run)$/ }).click();
    await expectState(page, 'failed');
    await expect(page.locator('#notices')).toContainText(said);
  }
  await page.route(/engine\.worker/, (route) => route.fulfill({ ...script, body: '' }));
  const startSilent = async () => {
    await expect.poll(() => page.workers().length).toBe(0); // the worker of the run before has closed
    await page.getByRole('button', { name: 'New run' }).click();
    await expect.poll(() => page.workers().length).toBe(1);
  };
  await startSilent();
  await page.evaluate('passLimit()');
  await expectState(page, 'failed');
  await expect(page.locator('#notices')).toContainText(
    'The engine stopped. Its script did not answer within 30 seconds. Start again. If it stops again, reload the page.',
  );
  await startSilent();
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await expectState(page, 'done');
  await expect(page.locator('.offer'), 'nothing was trained').toHaveCount(0);
  await expect(page.locator('#runs')).toContainText('Runs are saved here while they train');
});

/** Answers requests for a part of the page with 404, and for the page itself with the HTML of another version. */
async function update(page: Page, part: RegExp): Promise<void> {
  await page.route(part, (route) => route.fulfill({ status: 404, body: '' }));
  const isFetch = (request: Request) => request.resourceType() === 'fetch';
  await page.route(/\/(index\.html)?(\?.*)?$/, (route) =>
    isFetch(route.request())
      ? route.fulfill({ body: '<script type="module" src="./assets/new.js">' })
      : route.continue(),
  );
}

const inspect = async (page: Page) => {
  await page.getByRole('button', { name: 'Start' }).click();
  await expectState(page, 'done');
  await page.getByRole('button', { name: 'Inspect tokens' }).first().click();
};

const ask = async (page: Page) => {
  await expect(page.getByLabel('Your problem')).not.toHaveValue(''); // without an example, Enter does nothing
  await page.getByLabel('Your problem').press('Enter');
};

const PARTS: [string, RegExp, (page: Page) => Promise<void>][] = [
  ['the editor', /\/panel-.*\.js/, (page) => page.getByRole('button', { name: /^Change reward, loss/ }).click()],
  ['the inspector', /\/inspector-.*\.js/, inspect],
  ["the card of the visitor's model", /\/hubModel-/, (page) => page.getByRole('radio', { name: /^Your/ }).click()],
  ['a recipe', /\/countdown-[^/]*\.yaml/, (page) => page.getByRole('radio', { name: /^Countdown/ }).click()],
  ["a question's engine", /\/engine\.worker/, ask],
];

for (const [what, part, use] of PARTS)
  testIf(what === 'the editor')(
    `an update of the page that has removed ${what} is reported, with a reload`,
    async ({ page }) => {
      onlyBuilt();
      const errors: string[] = [];
      page.on('pageerror', ({ message }) => errors.push(message));
      await openPage(page, TINY);
      await expect(page.locator('#rollouts .try').first()).toBeVisible();
      await update(page, part);
      await use(page);
      const notice = page.locator('.notice.missing');
      await expect(notice).toContainText(
        'This page was updated. The version that is open here is no longer on its server. Reload the page to continue.',
      );
      expect(errors).toEqual([]);
      await page.unrouteAll();
      await notice.getByRole('button', { name: 'Reload' }).click();
      await expect(notice).toHaveCount(0);
      await expect(page.locator('#adapter')).toHaveAttribute('data-software', 'true');
    },
  );

testInFull('an update that has removed the trainer or its worker is reported at Start', async ({ page }) => {
  onlyBuilt();
  await page.addInitScript(() => {
    window.requestIdleCallback = () => 0; // nothing is opened ahead
  });
  for (const part of [/\/run-.*\.js/, /\/engine\.worker/]) {
    await page.unrouteAll();
    await update(page, part);
    await openPage(page, TINY);
    await page.getByRole('button', { name: 'Start' }).click();
    await expectState(page, 'failed');
    await expect(page.locator('.notice.missing')).toContainText('This page was updated.');
    await expect(page.locator('.notice.error')).toHaveCount(1);
  }
});

testInFull(
  'a run in a page that was updated is saved before the reload, and resumed after it',
  async ({ page, engine }) => {
    await openPage(page, { ...TINY, steps: 4 });
    await expect(page.locator('#rollouts .try').first()).toBeVisible();
    await update(page, /\/panel-.*\.js/);
    engine.upTo(1);
    await page.getByRole('button', { name: 'Start' }).click();
    await engine.reached(2);
    await page.getByRole('button', { name: /^Change reward, loss/ }).click();
    await expect(page.locator('.notice.missing')).toContainText(
      'The run is saved first, and can be resumed afterwards.',
    );
    await page.locator('.notice.missing').getByRole('button', { name: 'Reload' }).click();
    await expectState(page, 'pausing');
    await page.unrouteAll();
    engine.open();
    const offer = page.locator('.offer');
    await expect(offer).toContainText('stopped after step 2 of 4.');
    await offer.getByRole('button', { name: 'Resume' }).click();
    await expectState(page, 'done');
    await expectPoints(page, 'reward', 4);
  },
);

testInFull(
  'a part of the page that is missing without an update, or without the network, is reported as such',
  async ({ page }) => {
    onlyBuilt();
    await openPage(page);
    await expect(page.locator('#rollouts .try').first()).toBeVisible();
    await page.route(/\/panel-.*\.js/, (route) => route.fulfill({ status: 404, body: '' }));
    const open = () => page.getByRole('button', { name: /^Change reward, loss/ }).click();
    await open();
    await expect(page.locator('.notice.error')).toContainText(
      'A part of this page is missing. Its server does not send it',
    );
    await open();
    await page.route('**/*', (route) => route.abort());
    await open();
    await expect(page.locator('.notice.error')).toContainText('The server of this page does not answer.');
  },
);

testInFull(
  "an update that has removed a lesson's editor is reported there, and the plain field stays",
  async ({ page }) => {
    onlyBuilt();
    await update(page, /\/editor-.*\.js/);
    await page.goto('/lessons/1-groups/index.html');
    await page.locator('[data-exercise] .cell').first().scrollIntoViewIfNeeded();
    await expect(page.locator('main .notice')).toHaveText(
      'This page was updated. The version that is open here is no longer on its server. Reload the page to continue. ' +
        'Solved exercises are kept. Reload',
    );
    await expect(page.locator('[data-exercise] .cell textarea').first()).toBeVisible();
  },
);

test('numbers that are not finite end the run, with the step and the reason', async ({ page }) => {
  await openPage(page, { ...TINY, lr: '3e38', 'actor.optim.weightDecay': 10 });
  await page.getByRole('button', { name: 'Start' }).click();
  await expectState(page, 'failed');
  const notice = page.locator('.notice.error');
  await expect(notice).toContainText(/step \d+/);
  await expect(notice).toContainText('not finite');
  await expect(notice).toContainText('actor.optim.lr');
});

testInFull(
  'a rubric in the config, decided by another checkpoint in the worker: a curve of each criterion',
  async ({ page }) => {
    const rubric = { prompt: '{response} {criterion}', criteria: [{ name: 'brief', description: 'Is it brief?' }] };
    const judge = { 'reward.rubric': JSON.stringify(rubric), 'reward.judge.checkpoint': 'checkpoints/gsm8k-tool' };
    await openPage(page, { ...TINY, steps: 2, ...judge });
    await page.getByRole('button', { name: 'Start' }).click();
    await expectState(page, 'done');
    await expectPoints(page, 'reward/brief/mean', 2);
    await expectInk(page, 'reward/brief/mean');
    const [line] = (await downloadedLines(page)).filter((metrics) => 'reward/brief/mean' in metrics);
    expect(line['reward/brief/mean']).toBeGreaterThan(0);
    expect(line['reward/brief/mean']).toBeLessThan(1);
  },
);
