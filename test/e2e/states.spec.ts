/**
 * Every state of the page: axe finds nothing in light, dark and forced colours. `PICTURES=FOLDER npm test -- e2e states` writes pictures
 * of each state instead, at three sizes, light and dark (`node scripts/screenshots.mjs --into FOLDER`).
 */

import { join } from 'node:path';
import { expect, type Page } from '@playwright/test';
import type { TestGate } from '../scripted/gate.ts';
import { hasNatsServer } from '../natsServer.ts';
import { COLOURS, expectNoViolations } from './axe.ts';
import { address, expectPoints, expectState, fromStep, openDrawer, testIf, test } from './demo.ts';
import { openFor, region, tile } from './roomPage.ts';

const PICTURES = process.env['PICTURES'];

/** A run of the default recipe's sizes, with everything that a run can have: evaluations, checkpoints, sixteen problems. */
const RUN = {
  ...{ steps: 24, 'data.valMaxSamples': 32, 'actor.ppoMiniBatchSize': 16 },
  ...{ 'trainer.testFreq': 5, 'trainer.saveFreq': 5 },
};

interface State {
  /** Comes to the state. */
  reach: (page: Page, engine: TestGate) => Promise<void>;
  /** The part that a picture shows; default: the top of the page. */
  at?: string;
}

const press = (page: Page, name: string | RegExp) => page.getByRole('button', { name, exact: true }).first().click();

async function open(page: Page, settings: Parameters<typeof address>[0] = RUN): Promise<void> {
  await page.goto(address(settings));
  await expect(page.locator('#rollouts .try').first()).toBeVisible();
}

/** Trains `done` steps, and holds the run in the next. */
async function train(page: Page, engine: TestGate, done = 12, settings: Parameters<typeof address>[0] = RUN) {
  await open(page, settings);
  engine.upTo(done);
  await press(page, 'Start');
  await expectPoints(page, 'reward', done);
}

/** Trains to the end. */
async function finish(page: Page, engine: TestGate): Promise<void> {
  await train(page, engine);
  engine.open();
  await expectState(page, 'done');
}

const withoutGpu = (page: Page) =>
  page.addInitScript(() => Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined }));

const toEditor = async (page: Page) => {
  await press(page, /^Change reward, loss/);
  await expect(page.getByRole('textbox', { name: 'Code of the reward' })).toBeVisible();
};

const STATES: Record<string, State> = {
  idle: { reach: (page) => open(page) },
  words: {
    async reach(page) {
      await open(page);
      await page.getByText('Glossary').click();
    },
    at: '#about',
  },
  'settings open': {
    async reach(page) {
      await open(page);
      await openDrawer(page, 'settings');
      await page.getByText('More settings').click();
    },
  },
  refused: {
    async reach(page) {
      await page.goto(address({ ...RUN, lr: -1 }));
      await expect(page.getByRole('alert')).toBeVisible();
    },
  },
  'your model': {
    async reach(page) {
      await page.route('https://**', (route) => route.abort());
      await open(page);
      await page.getByRole('radio', { name: /^Your model/ }).check();
      await page.getByLabel('Model name on the Hub').fill('org/nope');
      await page.getByLabel('Model name on the Hub').press('Enter');
      await expect(page.locator('.hub .field-problem')).toBeVisible();
    },
  },
  asking: {
    async reach(page) {
      await page.goto(address({ 'model.path': 'org/tiny', hub: 'https://hub.example', autostart: '' }));
      await expect(page.locator('body')).toHaveAttribute('data-stage', 'asking');
    },
  },
  loading: {
    async reach(page, engine) {
      engine.upTo(0, 'load');
      await page.goto(address(RUN));
      await press(page, 'Start');
      await engine.held('load');
      await expectState(page, 'loading');
    },
  },
  'first step': {
    async reach(page, engine) {
      engine.upTo(0);
      await open(page);
      await press(page, 'Start');
      await engine.held('update');
    },
  },
  running: { reach: train },
  pausing: {
    async reach(page, engine) {
      await train(page, engine);
      await press(page, 'Pause');
      await expectState(page, 'pausing');
    },
  },
  paused: {
    async reach(page, engine) {
      await train(page, engine);
      await press(page, 'Pause');
      engine.upTo(13);
      await expectState(page, 'paused');
    },
  },
  'break it': {
    async reach(page, engine) {
      await train(page, engine);
      await press(page, 'reward guessing');
    },
  },
  broken: {
    async reach(page, engine) {
      await train(page, engine, 6);
      await press(page, 'reward guessing');
      await press(page, 'down');
      await expect(page.locator('.notice.replaced')).toBeVisible();
      engine.upTo(12);
      await expectPoints(page, 'reward', 12);
    },
  },
  inspector: {
    async reach(page, engine) {
      await train(page, engine, 3);
      await press(page, 'Inspect tokens');
      await page.locator('.token').nth(4).click();
    },
    at: '.try.open',
  },
  rules: {
    async reach(page, engine) {
      await train(page, engine, 3);
      await toEditor(page);
      await page.getByLabel('Preset').selectOption('reward length');
      await expect(page.locator('#rules .trial')).toBeVisible();
    },
    at: '#rules',
  },
  'live settings': {
    async reach(page, engine) {
      await train(page, engine, 3);
      await toEditor(page);
      await page.getByRole('tab', { name: 'Settings' }).click();
    },
    at: '#rules',
  },
  time: {
    async reach(page, engine) {
      await train(page, engine, 4);
      await press(page, 'Pause');
      engine.open();
      await expectState(page, 'paused');
      await expect(page.locator('.machine')).toBeVisible();
    },
    at: '#time',
  },
  ask: {
    async reach(page, engine) {
      await train(page, engine, 3);
      await press(page, 'Pause');
      engine.open();
      await expectState(page, 'paused');
      await page.getByRole('textbox', { name: 'Your problem' }).press('Enter');
      await expect(page.locator('#ask .exchange')).toHaveCount(1);
      await expect(page.locator('#ask .drawing')).toHaveCount(0);
    },
    at: '#ask',
  },
  'an earlier step': {
    async reach(page, engine) {
      await train(page, engine);
      await page.getByRole('slider', { name: 'Step' }).fill('7');
      await page.locator('.step-menu summary').click();
    },
  },
  'runs open': {
    async reach(page, engine) {
      await finish(page, engine);
      await openDrawer(page, 'runs');
      await page.locator('#runs .save summary').click();
    },
  },
  forking: {
    async reach(page, engine) {
      await finish(page, engine);
      await page.getByRole('slider', { name: 'Step' }).fill('12');
      await fromStep(page, /^Fork from 10/);
      await expect(page.locator('body')).toHaveAttribute('data-stage', 'forking');
    },
  },
  done: { reach: finish },
  'result as text': {
    async reach(page, engine) {
      await finish(page, engine);
      if (!(await page.locator('#result pre').isVisible())) await page.getByText('The result as text').click(); // open on a phone
    },
    at: '#result',
  },
  'a saved run': {
    async reach(page, engine) {
      await train(page, engine);
      page.on('dialog', (dialog) => void dialog.accept());
      await page.reload();
      await expect(page.locator('.offer').getByRole('button', { name: 'Resume' })).toBeVisible();
    },
  },
  'shared result': {
    async reach(page, engine) {
      await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
      await finish(page, engine);
      await press(page, 'Copy link');
      await expect(page.getByText(/^Copied: /)).toBeVisible();
      const link = await page.evaluate(() => navigator.clipboard.readText());
      await page.goto('about:blank');
      await page.goto(link);
      await expect(page.getByRole('region', { name: 'Shared run' })).toBeVisible();
      await expectPoints(page, 'reward', 24);
    },
  },
  recorded: {
    async reach(page) {
      await page.emulateMedia({ reducedMotion: 'reduce' }); // it then shows its end
      await open(page);
      await press(page, 'Watch a recorded run');
      await expect(page.getByRole('button', { name: 'Play again' })).toBeVisible();
    },
  },
  'no GPU': {
    async reach(page) {
      await page.emulateMedia({ reducedMotion: 'reduce' });
      await withoutGpu(page);
      await page.goto('/');
      await expectState(page, 'no-gpu');
      await expect(page.getByRole('button', { name: 'Play again' })).toBeVisible();
    },
  },
  'lost GPU': {
    async reach(page, engine) {
      await page.addInitScript(() => {
        const { setTimeout } = window;
        const withoutSeconds = (then: () => void, ms = 0) => setTimeout(then, ms < 1000 || ms > 5000 ? ms : 0);
        window.setTimeout = withoutSeconds as typeof window.setTimeout;
      });
      await train(page, engine, 5);
      for (let lost = 0; lost < 4; lost++) {
        await expectState(page, 'running');
        const [worker] = page.workers();
        const closed = worker.waitForEvent('close');
        await worker.evaluate('scriptedEngine.lose()');
        await closed;
      }
      await expectState(page, 'failed');
    },
  },
  failed: {
    async reach(page) {
      await page.route(/engine\.worker/, (route) => route.fulfill({ contentType: 'text/javascript', body: 'throw 1' }));
      await page.goto(address(RUN));
      await press(page, 'Start');
      await expectState(page, 'failed');
    },
  },
  'page updated': {
    async reach(page, engine) {
      await page.route(/\/panel-.*\.js/, (route) => route.fulfill({ status: 404, body: '' }));
      await train(page, engine, 4);
      await press(page, /^Change reward, loss/);
      await expect(page.locator('.notice.error')).toBeVisible();
    },
  },
  lesson: {
    async reach(page) {
      await page.goto(`${address(RUN)}&lesson=cheat`);
      await expect(page.locator('#lesson h2')).toBeVisible();
      await expect(page.locator('#rollouts .try').first()).toBeVisible();
    },
  },
};

/** States of a page that works for a room. */
const ROOM: Record<string, (page: Page, address: string, code: string) => Promise<void>> = {
  asked: async (page, at, code) => void (await openFor(page, at, code)),
  'not let in': async (page, _, code) => {
    await openFor(page, 'ws://127.0.0.1:9', code);
    await press(page, 'Join');
    await expect(region(page).locator('.notice.error')).toBeVisible();
  },
  working: async (page, at, code) => {
    await openFor(page, at, code);
    await press(page, 'Join');
    await expect(tile(page, 'Status')).toHaveText('Waiting for problems');
  },
};

const SIZES = { 1440: 900, 1280: 720, 390: 844 };

/** Writes the pictures of a state. */
async function takePictures(page: Page, name: string, at: string | undefined, widths: readonly number[], to: string) {
  for (const width of widths) {
    await page.setViewportSize({ width, height: SIZES[width as keyof typeof SIZES] });
    for (const [colours, media] of Object.entries({ light: COLOURS.light, dark: COLOURS.dark })) {
      await page.emulateMedia(media);
      await page.evaluate(async (selector) => {
        const frame = () => new Promise((drawn) => requestAnimationFrame(drawn));
        for (let i = 0; i < 4; i++) await frame(); // charts follow a new size in a later frame
        document.querySelector(selector)?.scrollIntoView();
        await frame();
      }, at ?? 'body');
      await page.screenshot({ path: join(to, `${name.replaceAll(' ', '-')}-${width}-${colours}.png`) });
    }
  }
  await page.emulateMedia(COLOURS.light);
}

for (const [device, widths, use] of [
  ['a desktop', [1280, 1440], {}],
  ['a phone', [390], { hasTouch: true, isMobile: true, viewport: { width: 390, height: 844 } }],
] as const)
  test.describe(`axe finds nothing on ${device}`, () => {
    test.use(use);
    // On a phone the colours are those of a desktop.
    const colours = device === 'a phone' ? { light: COLOURS.light } : COLOURS;
    const look = async (page: Page, name: string, at?: string) => {
      if (device === 'a desktop') await page.setViewportSize({ width: 1440, height: 900 });
      if (PICTURES !== undefined) await takePictures(page, name, at, widths, PICTURES);
      else await expectNoViolations(page, name, colours);
    };

    for (const [name, { reach, at }] of Object.entries(STATES))
      testIf(PICTURES !== undefined)(name, async ({ page, engine }) => {
        await reach(page, engine);
        await look(page, name, at);
      });

    for (const [name, reach] of Object.entries(ROOM))
      testIf(PICTURES !== undefined)(`room, ${name}`, async ({ page }) => {
        test.skip(!hasNatsServer(), 'nats-server is not installed');
        const { realRoom } = await import('./realRoom.ts');
        const real = await realRoom();
        try {
          await reach(page, real.room.server.webSocket, real.room.code);
          await look(page, `room ${name}`);
        } finally {
          await real.end();
        }
      });
  });
