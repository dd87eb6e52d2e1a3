/**
 * Acts at random on the page: clicks, types, presses keys, drags and reloads, whatever the page is doing. It must not freeze, report an
 * error, or leave a visitor without anything to press, and its address must reopen the same settings. `WALKS=2000 npm test -- e2e walk`
 * walks that many sequences; `WALK_SEED=7` repeats one.
 */

import { type CDPSession, expect, type Page } from '@playwright/test';
import { rng } from '../random.ts';
import { address, test as base, TINY } from './demo.ts';

const WALKS = Number(process.env['WALKS'] ?? 5);
const FIRST_SEED = Number(process.env['WALK_SEED'] ?? 1);
const ACTIONS = 12;
/**
 * Maximum milliseconds for which the main thread may be blocked. Checked only if many sequences are requested, because the everyday tests
 * share their machine.
 */
const FREEZE_MS = WALKS < 100 ? Infinity : 2000;

/** A desktop, a laptop and a phone, in turn. */
const SIZES = [
  { width: 1440, height: 900 },
  { width: 1280, height: 720 },
  { width: 390, height: 844 },
];

const TEXTS = ['7', '0', '-1', '1e-3', 'ten', 'export function reward() { return 1 }', ' ', '\u202e<b>'];
const KEYS = ['Tab', 'Shift+Tab', 'Enter', ' ', 'Escape', 'ArrowRight', 'ArrowDown', 'Home', 'Delete', 'x'];

/** Elements that can be pressed or typed into, except those that leave the page or open a window of the browser. */
const TARGETS =
  'button, summary, select, textarea, input:not([type=file]), [role=slider], .cm-content, .token, a[href^="#"]';

/** Marks a random visible target and returns its centre; undefined without a visible target. Runs in the page. */
function pick({ targets, at, only }: { targets: string; at: number; only: string }) {
  const isThere = (one: Element) => one.checkVisibility({ visibilityProperty: true }) && one.matches(only);
  const all = [...document.querySelectorAll(targets)].filter(isThere);
  const chosen = all[Math.floor(at * all.length)] as HTMLElement | undefined;
  if (!chosen) return undefined;
  chosen.scrollIntoView({ block: 'center' });
  const { left, top, width, height } = chosen.getBoundingClientRect();
  const name = chosen.getAttribute('aria-label') ?? chosen.textContent ?? '';
  return {
    x: left + width / 2,
    y: top + height / 2,
    name: `${chosen.tagName} ${chosen.id} ${name.trim().slice(0, 40)}`,
  };
}

/** Returns the settings in the form: its numbers, its summary and the chosen card. Runs in the page. */
const settings = () => ({
  numbers: [...document.querySelectorAll<HTMLInputElement>('#settings input')].map(({ name, value, placeholder }) => ({
    [name]: Number(value.trim() || placeholder),
  })),
  summary: document.querySelector('#settings .summary')?.textContent,
  card: document.querySelector<HTMLInputElement>('.card.chosen input, #task select')?.value,
});

/**
 * Returns whether a visitor can continue: a button of the run or of a notice works, or the form says what is wrong. Also returns the longest
 * time that the main thread was busy. Runs in the page.
 */
function look() {
  const works = (button: HTMLButtonElement) =>
    !button.disabled && button.ariaDisabled !== 'true' && button.checkVisibility({ visibilityProperty: true });
  const buttons = document.querySelectorAll<HTMLButtonElement>(
    '#buttons button, #notices button, #told button, [data-stage="forking"] #drawer button',
  );
  const isTold = document.querySelector('[aria-invalid="true"], #plan.wrong') !== null;
  const { busy } = globalThis as unknown as { busy: number[] };
  return { canContinue: isTold || [...buttons].some((button) => works(button)), longest: Math.max(0, ...busy) };
}

async function act(page: Page, random: () => number): Promise<string> {
  const kind = random();
  const target = async (only: string) => page.evaluate(pick, { targets: TARGETS, at: random(), only });
  if (kind < 0.45) {
    // Buttons that change the stage, such as the run's, are pressed more often.
    const at = await target(random() < 0.5 ? '.top *, #notices *, #timeline *, #told *, #drawer *' : '*');
    if (at) await page.mouse.click(at.x, at.y);
    return `click ${at?.name}`;
  }
  if (kind < 0.7) {
    const at = await target('input:not([type=radio], [type=checkbox]), textarea, .cm-content');
    const text = TEXTS[Math.floor(random() * TEXTS.length)];
    if (at) await page.mouse.click(at.x, at.y, { clickCount: 3 });
    if (at) await page.keyboard.type(text);
    return `type ${JSON.stringify(text)} into ${at?.name}`;
  }
  if (kind < 0.85) {
    const key = KEYS[Math.floor(random() * KEYS.length)];
    await page.keyboard.press(key);
    return `press ${key}`;
  }
  if (kind < 0.95) {
    const at = await target('*');
    if (!at) return 'nothing to drag';
    await page.mouse.move(at.x, at.y);
    await page.mouse.down();
    await page.mouse.move(at.x + 200 * (random() - 0.5), at.y + 200 * (random() - 0.5), { steps: 3 });
    await page.mouse.up();
    return `drag ${at.name}`;
  }
  await reload(page);
  return 'reload';
}

const isReady = () =>
  document.querySelector('#settings input') !== null && document.body.dataset['stage'] !== undefined;

/** Reloads the page. If the form is valid, the address must bring back the same settings. */
async function reload(page: Page): Promise<void> {
  await page.evaluate(() => new Promise((settled) => setTimeout(() => setTimeout(settled)))); // `soon` has written the address
  const before = await page.evaluate(settings);
  const isRight = await page.evaluate(
    () => document.querySelector('#settings [aria-invalid="true"], #plan.wrong') === null,
  );
  await page.reload();
  await page.waitForFunction(isReady);
  if (isRight) expect(await page.evaluate(settings)).toEqual(before);
}

/** Makes the page write its address immediately. Runs in the page. */
function soon(): void {
  const { setTimeout } = window;
  window.setTimeout = ((then: () => void, ms?: number) => setTimeout(then, ms === 300 ? 0 : ms)) as typeof setTimeout;
}

/** Prevents a click from leaving the page if a link has moved under the pointer. Runs in the page. */
function stay(): void {
  const isLink = (target: EventTarget | null) =>
    target instanceof Element && target.closest('a[href]:not([href^="#"])');
  addEventListener('click', (event) => void (isLink(event.target) && event.preventDefault()), true);
}

/** A tab for all sequences of a worker, because a new context for each would load and compile the page's scripts again. */
interface Tab {
  page: Page;
  /** Errors that the page has reported since it was opened. */
  errors: string[];
  loads: number;
  /** Opens the page for a visitor who has never been there. */
  open(address: string): Promise<void>;
}

const test = base.extend<object, { tab: Tab }>({
  tab: [
    async ({ browser }, use, { project }) => {
      const baseURL = project.use.baseURL!;
      const page = await browser.newPage({ baseURL });
      const storage: CDPSession = await page.context().newCDPSession(page);
      const tab: Tab = {
        ...{ page, errors: [], loads: 0 },
        async open(at) {
          await page.goto('about:blank');
          await storage.send('Storage.clearDataForOrigin', { origin: baseURL, storageTypes: 'all' });
          tab.errors = [];
          await page.goto(at);
          await page.waitForFunction(isReady);
          expect(await page.evaluate(() => document.body.dataset['stage']), 'nothing is stored').toBe('idle');
        },
      };
      page.on('pageerror', (error) => tab.errors.push(String(error.stack)));
      page.on('console', (line) => {
        const isOwn = line.location().url.startsWith('http://127.0.0.1');
        if (line.type() === 'error' && (isOwn || !line.text().startsWith('Failed to load resource')))
          tab.errors.push(line.text());
      });
      page.on('domcontentloaded', () => tab.loads++);
      page.on('dialog', (dialog) => void dialog.accept().catch(() => {}));
      await page.addInitScript(() => {
        const busy: number[] = [];
        new PerformanceObserver((list) => busy.push(...list.getEntries().map(({ duration }) => duration))).observe({
          entryTypes: ['longtask'],
        });
        Object.assign(globalThis, { busy });
      });
      await page.addInitScript(soon);
      await page.addInitScript(stay);
      await use(tab);
      await page.close();
    },
    { scope: 'worker' },
  ],
});

for (let seed = FIRST_SEED; seed < FIRST_SEED + WALKS; seed++)
  test(`random actions, sequence ${seed}`, async ({ tab }) => {
    const { page } = tab;
    const { uniform } = rng(seed);
    await page.setViewportSize(SIZES[seed % SIZES.length]);
    await tab.open(address({ ...TINY, steps: 30, 'trainer.saveFreq': 2, 'trainer.testFreq': 10 }));
    const done: string[] = [];
    for (let i = 0; i < ACTIONS; i++) {
      const { loads } = tab;
      const action = await act(page, uniform);
      done.push(action);
      const story = `after: ${done.join('; ')}`;
      if (action !== 'reload') expect(tab.loads, `loaded again ${story}`).toBe(loads);
      expect(tab.errors, story).toEqual([]);
      await expect.poll(() => page.evaluate(look).catch(String), story).toMatchObject({ canContinue: true });
      const { longest } = await page.evaluate(look);
      expect(longest, story).toBeLessThan(FREEZE_MS);
    }
  });
