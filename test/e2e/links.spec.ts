/** Tests links: the address follows the settings, a link can contain a result, and opening a link starts nothing automatically. */

import { expect, type Page } from '@playwright/test';
import {
  address,
  encodeResult,
  expectPoints,
  expectState,
  openPage,
  roundTrip,
  test,
  testInFull,
  TINY,
} from './demo.ts';
import type { RunChange } from '../../demo/storage/runChanges.ts';

const sent = (changes: readonly RunChange[] = []) =>
  encodeResult({
    history: Array.from({ length: 81 }, (_, step) => ({
      'training/global_step': step,
      ...(step > 0 && { 'critic/score/mean': 0.6 + step / 250 }),
      ...(step % 20 === 0 && { 'val-core/gsm8k/acc/mean@1': 0.39 + step / 140 }),
    })),
    adapter: '<img src=x onerror=alert(1)>',
    seconds: 480,
    trainedTokens: 600_000,
    changes,
  });

/** Records the page's requests to other servers. */
function foreignRequests(page: Page): string[] {
  const asked: string[] = [];
  page.on('request', (request) => {
    if (/^https?:/.test(request.url()) && !request.url().startsWith('http://127.0.0.1')) asked.push(request.url());
  });
  return asked;
}

/** Advances the page's clock by ten seconds, and waits for the requests that the page makes in this time. */
async function passTime(page: Page): Promise<void> {
  await page.clock.runFor(10_000);
  await roundTrip(page);
}

test('the address follows the settings, and opens with them', async ({ page }) => {
  await openPage(page);
  await page.getByText('More settings').click();
  await page.getByLabel('Seed', { exact: true }).fill('7');
  await page.getByLabel('Tries per problem').fill('4');
  await expect(page).toHaveURL(/\?n=4&seed=7$/);
  await page.getByLabel('Seed', { exact: true }).fill('x'); // an invalid setting has no address
  await page.getByLabel('Tries per problem').fill('8');
  await page.getByLabel('Seed', { exact: true }).fill('7');
  await expect(page).toHaveURL(/\?seed=7$/);
  await page.reload();
  await expect(page.getByLabel('Seed', { exact: true })).toHaveValue('7');
});

test('an unknown parameter or key is reported with the nearest known one, a damaged result in one message', async ({
  page,
}) => {
  await page.goto('/?lrr=1e-4');
  await expect(page.locator('.notice.error')).toContainText('Unknown parameter "lrr". Did you mean "lr"?');
  await expect(page.locator('.notice.error')).toContainText('Known parameters: config, algorithm,');
  await page.goto(address({ 'rollout.temprature': 1 }));
  await expect(page.locator('#plan')).toContainText('Did you mean "rollout.temperature"?');
  await page.goto('about:blank'); // so that the page is loaded again
  await page.goto(`/#r=${(await sent()).slice(0, -20)}<b>`);
  await expect(page.locator('.notice.error')).toContainText('The result in this link is damaged');
  await expect(page.getByRole('button', { name: 'Start' })).toBeEnabled();
});

test('a result from a link is shown as a shared run, as text, and starts nothing', async ({ page }) => {
  const asked = foreignRequests(page);
  const [alerts, begun]: string[][] = [[], []];
  page.on('request', (request) => {
    if (/warmUp|[?&]worker_file|\.worker-/.test(request.url())) begun.push(request.url());
  });
  page.on('dialog', (dialog) => {
    alerts.push(dialog.message());
    void dialog.dismiss();
  });
  await page.clock.install();
  await page.goto(`${address({ seed: 3, hub: 'https://hub.example', autostart: '' })}#r=${await sent()}`);
  const run = page.getByRole('region', { name: 'Shared run' });
  await expect(run).toContainText('Word problems with a calculator, by GRPO, 80 steps, seed 3, 8 min, on <img src=x');
  await expectPoints(page, 'reward', 80);
  await expectPoints(page, 'pass', 5);
  const card = run.locator('canvas');
  await expect(card).toHaveAttribute(
    'aria-label',
    /^webgrpo: Word problems with a calculator, by GRPO\n0\.39 \u2192 0\.96 /,
  );
  await expect(page.getByRole('group', { name: 'Choose a task' }), 'nothing else is shown').toBeHidden();
  await expect(page.getByRole('button', { name: 'Start' })).toHaveCount(0);
  await passTime(page);
  await expectState(page, 'idle');
  expect([asked, alerts, begun, page.workers()]).toEqual([[], [], [], []]);

  await run.getByRole('button', { name: 'Close' }).click();
  await expectPoints(page, 'reward', 0);
  await expect(page).not.toHaveURL(/#/);
});

test('"Run it here" trains by the settings of the link, and the link of that run carries its own result', async ({
  page,
  context,
}) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.goto(`${address({ ...TINY, steps: 2, seed: 5, 'trainer.valBeforeTrain': true })}#r=${await sent()}`);
  await page.getByRole('button', { name: 'Run it here' }).click();
  await expectState(page, 'done');
  await expect(page.getByRole('region', { name: 'Shared run' })).toHaveCount(0);
  await page.getByRole('button', { name: 'Copy link' }).click();
  await expect(page.getByText(/^Copied: settings and curves, \d+ characters\.$/)).toBeVisible();
  const link = await page.evaluate(() => navigator.clipboard.readText());
  expect(link.length).toBeLessThan(1500);

  const result = page.getByRole('region', { name: 'Result' });
  const card = page.locator('canvas[aria-label]');
  await expect(card).toHaveAttribute('aria-label', /pass@1 on held-out problems, before training and after 2 steps/);
  await result.getByRole('button', { name: 'Copy text' }).click();
  await expect(result.getByText('Text copied.')).toBeVisible();
  const text = await page.evaluate(() => navigator.clipboard.readText());
  expect(text).toMatch(
    /^webgrpo: Word problems with a calculator, by GRPO\n\d\.\d\d \u2192 \d\.\d\d pass@1 on held-out problems, before training and after 2 steps\n/,
  );
  expect(text).toContain('seed 5');
  const answers = /\n\nHeld-out problem \d: .+\nBefore training \(\w+\): .+\nAfter step 2 \(\w+\): .+$/.exec(text)![0];
  const download = page.waitForEvent('download');
  await result.getByRole('button', { name: 'Save picture' }).click();
  expect((await download).suggestedFilename()).toBe('webgrpo-result.png');

  await page.goto('about:blank');
  await page.goto(link);
  await expect(page.getByRole('region', { name: 'Shared run' })).toContainText('2 steps, seed 5');
  await expect(card, 'the link has the answers').toHaveAttribute(
    'aria-label',
    new RegExp(`${answers.replaceAll(/[^\w\s]/g, '.')}$`),
  );
  await expectPoints(page, 'reward', 2);
});

testInFull(
  'a run whose reward was replaced says so: in its notice, on its card, in its link, and at the next start',
  async ({ page, context }) => {
    await context.grantPermissions(['clipboard-read', 'clipboard-write']);
    await openPage(page, { ...TINY, 'trainer.testFreq': 1 });
    await page.getByRole('button', { name: 'Change reward, loss or tools during the run' }).click();
    await page.getByLabel('Preset').selectOption('reward guessing');
    await page.getByRole('button', { name: 'Apply' }).click();
    const notice = page.locator('.notice.replaced');
    await expect(notice).toContainText('The next run starts with another reward: reward guessing');
    await page.getByRole('button', { name: 'Start', exact: true }).click();
    await expectState(page, 'done');
    await expect(notice, 'it stays for the next run').toContainText('The next run starts with another reward');
    const said = 'Reward replaced by "reward guessing" at step 1';
    await expect(page.locator('#result canvas')).toHaveAttribute('aria-label', new RegExp(said));
    await page.getByRole('button', { name: 'Copy link' }).click();
    await expect(page.getByText(/^Copied: /)).toBeVisible();
    const link = await page.evaluate(() => navigator.clipboard.readText());
    await notice.getByRole('button', { name: 'Undo' }).click();
    await expect(notice).toHaveCount(0);
    await page.getByRole('button', { name: 'New run' }).click();
    await expectState(page, 'done');
    await expect(page.locator('#result canvas')).toHaveAttribute('aria-label', /^(?![^]*replaced)/);

    await page.goto('about:blank');
    await page.goto(link);
    await expect(page.getByRole('region', { name: 'Shared run' })).toContainText(said);
    await page.getByRole('button', { name: 'Run it here with these changes' }).click();
    await expectState(page, 'done');
    await expect(page.locator('#result canvas'), 'the rule was repeated').toHaveAttribute(
      'aria-label',
      new RegExp(said),
    );
  },
);
