/** Tests the cards: each opens its recipe and runs; a model of the hub is looked up on a click. */

import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { expect, type Page } from '@playwright/test';
import { startHub, portOf } from '../hubServer.ts';
import { storedIn } from './savedLines.ts';
import {
  address,
  expectPoints,
  expectState,
  isFull,
  onlyOnReal,
  testInFull,
  stepInFull,
  openPage,
  roundTrip,
  test,
  TINY,
} from './demo.ts';

/** Returns the shipped model as a GGUF file. */
const shippedGguf = async () => {
  const { ggufModel } = await import('../../src/extensions/gguf/index.ts');
  const { readCheckpoint } = await import('../../src/node.ts');
  return ggufModel({ name: 'tiny', type: 'F16' }, await readCheckpoint('checkpoints/gsm8k-tool')).bytes;
};

test('cards are a radio group by keyboard, say what a run costs here, and choose the recipe', async ({
  page,
  engine,
}) => {
  engine.upTo(0, 'load'); // an idle page would time a step
  await openPage(page);
  const card = (name: RegExp) => page.getByRole('radio', { name });
  await expect(page.getByRole('group', { name: 'Choose a task' })).toBeVisible();
  await expect(card(/^Calculator/)).toBeChecked();
  await expect(page.locator('.card-cost').first()).toHaveText('about 3 min on two CPU cores, 249 MB');
  await card(/^Calculator/).press('ArrowRight');
  await expect(card(/^Backwards/)).toBeChecked();
  await expect(card(/^Backwards/)).toBeFocused();
  await expect(page).toHaveURL(/\?config=reverse-text$/);
  await expect(page.locator('.example')).toContainText('daj');
  await expect(page.locator('#plan')).toHaveText(
    /^16 texts \u00d7 16 tries, 100 steps: about .*, 80 MB of GPU memory\.$/,
  );
  await page.getByLabel('Tries per problem').fill('32');
  await expect(page.locator('#plan')).toHaveText(/about 1.5 min/);
  await expect(page.locator('#adapter')).toHaveAttribute('data-software', /true|false/);
  const said = await page.locator('#adapter').innerText();
  const name = said.replace(/^Software adapter: (.*) on the CPU, .*$/, '$1');
  await page.evaluate((adapter) => localStorage.setItem('webgrpo-speed', JSON.stringify({ [adapter]: 10 })), name);
  await expect(page).toHaveURL(/n=32/);
  await page.reload();
  await expect(card(/^Backwards/)).toBeChecked();
  await expect(page.locator('#plan')).toContainText('about 16 min here');

  await stepInFull('an adapter that is not known yet is timed while the page idles', async () => {
    engine.open();
    await page.evaluate(() => localStorage.clear());
    await page.goto(address());
    await expect(page.locator('.card-cost').first()).toHaveText(/^about .* here, 249 MB$/);
    const kept = await page.evaluate(() => localStorage.getItem('webgrpo-speed'));
    console.log(`factor of this machine while the page idles: ${kept}`);
    expect(Object.entries(JSON.parse(kept!) as object)).toEqual([[name, expect.any(Number)]]);
    await expectState(page, 'idle');
  });
});

testInFull('"Your model" without a model starts nothing, and the address reopens that card', async ({ page }) => {
  await openPage(page, { config: 'reverse-text' });
  const [start, card] = [page.getByRole('button', { name: 'Start' }), page.getByRole('radio', { name: /^Your model/ })];
  await card.check();
  await expect(page.getByLabel('Model name on the Hub')).toBeVisible();
  await expect(start).toBeDisabled();
  await page.getByRole('textbox', { name: 'Steps' }).press('Enter');
  await expectState(page, 'idle');
  await expect(page.locator('#plan')).toHaveText(/^No model is chosen\. /);
  await expect(page).toHaveURL(/\?config=your-model$/);
  await page.reload();
  await expect(card).toBeChecked();
  await expect(start).toBeDisabled();
  await page.getByRole('radio', { name: /^Calculator/ }).check();
  await expect(start).toBeEnabled();
  await expect(page).toHaveURL(/\/\??$/);
});

testInFull(
  'a card whose recipe cannot be loaded is not left marked; of two cards, the one chosen last is opened',
  async ({ page }) => {
    await page.route('**/countdown*.yaml', (route) => route.fulfill({ status: 503 }));
    await openPage(page);
    await page.getByRole('radio', { name: /^Countdown/ }).click();
    await expect(page.locator('.notice.error')).toContainText('countdown could not be loaded');
    await expect(page.getByRole('radio', { name: /^Calculator/ })).toBeChecked();

    let letGo = () => {};
    const held = new Promise<void>((resolve) => (letGo = resolve));
    await page.route('**/countdown*.yaml', async (route) => {
      await held;
      await route.continue();
    });
    await page.getByRole('radio', { name: /^Countdown/ }).click();
    await page.getByRole('radio', { name: /^Backwards/ }).click();
    await expect(page).toHaveURL(/\?config=reverse-text$/);
    const late = page.waitForResponse('**/countdown*.yaml');
    letGo();
    await (await late).finished();
    await roundTrip(page);
    await expect(page.getByRole('radio', { name: /^Backwards/ })).toBeChecked();
    await expect(page).toHaveURL(/\?config=reverse-text$/);
  },
);

testInFull('reverse-text trains its start model once, and reuses it the second time', async ({ page }) => {
  onlyOnReal();
  const small = { config: 'reverse-text', steps: 2, 'data.valMaxSamples': 4, 'trainer.valBeforeTrain': false };
  await openPage(page, small);
  await page.getByRole('button', { name: 'Start' }).click();
  await expect(page.getByText(/Warm start on example answers: step \d+ of 60/)).toBeVisible();
  await expectState(page, 'done');
  await expectPoints(page, 'reward', 2);
  await expect(page.locator('#plan'), 'measured by the second step').toContainText('here');
  let workers = 0;
  page.on('worker', () => workers++);
  await page.getByRole('button', { name: 'New run' }).click();
  await expectState(page, 'done');
  expect(workers, 'one to train in, none to imitate in').toBe(1);
});

testInFull('every recipe of the cards trains a step', async ({ page }) => {
  onlyOnReal();
  await openPage(page);
  const names = await page
    .locator('.card input[value]')
    .evaluateAll((inputs) => inputs.map((input) => (input as HTMLInputElement).value));
  const small = { steps: 1, n: 2, 'trainer.valBeforeTrain': false, 'data.valMaxSamples': 2, 'trainer.testFreq': 0 };
  // All warm starts together take 20 minutes. The test before this one waits for one.
  const shortened = new Set<string>();
  await page.route('**/configs/*-sft.yaml', async (route) => {
    if (route.request().resourceType() !== 'fetch') return route.fallback();
    shortened.add(route.request().url());
    const text = await (await route.fetch()).text();
    const steps = (key: string, count: number) => [new RegExp(`${key}: \\d+`), `${key}: ${count}`] as const;
    return route.fulfill({
      body: text.replace(...steps('totalTrainingSteps', 2)).replace(...steps('lrWarmupSteps', 0)),
    });
  });
  for (const name of names.filter((value) => value !== 'your-model'))
    await test.step(name, async () => {
      await page.goto(address({ config: name, ...small }));
      await page.getByRole('button', { name: /^Start/ }).click();
      await expectState(page, 'done');
      await expectPoints(page, 'reward', 1);
    });
  expect(shortened.size, 'all but the shipped one, and the model of the user').toBe(names.length - 2);
});

test('a model of the hub is not requested while typing; then its sizes are shown and its settings used', async ({
  page,
}) => {
  const files = ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'model.safetensors'];
  const shipped = (file: string) => new Uint8Array(readFileSync(`checkpoints/gsm8k-tool/${file}`));
  const hub = await startHub(new Map(files.map((file) => [file, shipped(file)])));
  hub.files.set('tiny-F16.gguf', await shippedGguf());
  try {
    await openPage(page, { hub: hub.endpoint });
    await page.getByRole('radio', { name: /^Your model/ }).check();
    await page.getByLabel('Model name on the Hub').fill('org/nope');
    await roundTrip(page);
    expect(hub.log).toEqual([]);
    await page.getByRole('button', { name: 'Look up' }).click();
    await expect(page.getByText('has no such model or revision')).toBeVisible();
    let letGo = () => {};
    const held = new Promise<void>((resolve) => (letGo = resolve));
    await page.route('**/api/models/org/slow/**', async (route) => {
      await held;
      await route.continue();
    });
    await page.getByLabel('Model name on the Hub').fill('org/slow');
    await page.getByLabel('Model name on the Hub').press('Enter');
    await page.getByLabel('Model name on the Hub').fill('org/tiny');
    await page.getByLabel('Model name on the Hub').press('Enter');
    await expect(page.getByText('0.4 million')).toBeVisible();
    const late = page.waitForResponse('**/api/models/org/slow/**');
    letGo();
    await late;
    await roundTrip(page);
    await expect(page.getByText('0.4 million'), 'the answer of an older name comes late').toBeVisible();
    await expect(page.locator('.hub-facts')).toContainText('2 MB, stored in the browser');
    expect(hub.log.filter((line) => line.includes('safetensors'))).toEqual([]);
    await page.getByRole('button', { name: 'Use this model' }).click();
    await expect(page.getByText('Settings filled in for org/tiny')).toBeVisible();
    await expect(page).toHaveURL(/set=model\.path%3Dorg%2Ftiny/);
    await expect(page.getByLabel('Learning rate')).toHaveValue('2e-5');

    await page.getByLabel('Model name on the Hub').fill('org/tiny:F16');
    await page.getByLabel('Model name on the Hub').press('Enter');
    await expect(page.locator('.hub-facts'), 'from the header of the GGUF file').toContainText('1 MB, stored');
    expect(hub.log.at(-1)).toMatch(/^\/cdn\/tiny-F16\.gguf bytes=0-\d+$/);
    await page.getByRole('button', { name: 'Use this model' }).click();
    await expect(page).toHaveURL(/set=model\.path%3D%22org%2Ftiny%3AF16%22/);

    hub.log.length = 0;
    await page.goto(address({ 'model.path': 'org/tiny', hub: hub.endpoint, autostart: true }));
    const offer = page.locator('.notice.offer');
    await expect(offer).toContainText(`This link trains org/tiny, with files from ${new URL(hub.endpoint).host}`);
    await expectState(page, 'idle');
    await offer.getByRole('button', { name: 'Cancel' }).click();
    await expect(offer).toHaveCount(0);
    await expectState(page, 'idle');
    await roundTrip(page);
    expect(hub.log, 'a link alone downloads nothing').toEqual([]);
  } finally {
    hub.close();
  }
});

/** Answers of a server that is asked for a model, and their sentences for a name on a hub and for the address of a file. */
const UNREADABLE = {
  'lacks it': {
    name: 'has no such model or revision. Check its name.',
    file: 'was not sent: the server answered 404. Check the address.',
  },
  'answers with a web page': {
    name: 'returned no list of files. Give the address of a Hugging Face hub.',
    file: 'is a web page and not a GGUF file. Give the address of the file itself.',
  },
  'forbids other sites': {
    name: 'does not allow other sites to read it (CORS). Check the network, or name another hub by "hub=" in the address of this page.',
    file: 'does not allow other sites to read it (CORS). Check the address, or download the file and choose it.',
  },
  'is down': {
    name: 'does not answer. Check the network, or name another hub by "hub=" in the address of this page.',
    file: 'does not answer. Check the address, or download the file and choose it.',
  },
};

testInFull(
  'a model that cannot be read is named with the reason and with what to do, on the card and at Start',
  async ({ page }) => {
    let now = '';
    const server = createServer((_, response) => {
      if (now !== 'forbids other sites') response.setHeader('access-control-allow-origin', '*');
      if (now === 'is down') response.destroy();
      else if (now === 'lacks it') response.writeHead(404).end();
      else response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>hub</title>');
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const endpoint = `http://127.0.0.1:${portOf(server)}`;
    await openPage(page, { hub: endpoint });
    await page.getByRole('radio', { name: /^Your model/ }).check();
    const [field, problem] = [page.getByLabel('Model name on the Hub'), page.locator('.hub .field-problem')];
    for (const [what, said] of Object.entries(UNREADABLE)) {
      now = what;
      await field.fill('org/tiny');
      await field.press('Enter');
      await expect(problem).toContainText(said.name);
      await expect(problem).toContainText(/^org\/tiny: http/);
      await field.fill(`${endpoint}/tiny.gguf`);
      await field.press('Enter');
      await expect(problem).toHaveText(`${endpoint}/tiny.gguf ${said.file}`);
    }
    now = 'forbids other sites';
    await openPage(page, { ...TINY, hub: endpoint, 'model.path': 'org/tiny' });
    await page.getByRole('button', { name: 'Start' }).click();
    await expect(page.locator('.notice.error')).toHaveText(
      `org/tiny: ${endpoint} ${UNREADABLE['forbids other sites'].name}`,
    );
    server.close();
    server.closeAllConnections();
  },
);

/** Expects that a window without storage, and one without space, says so and keeps no part of a model's file. */
async function expectUnstored(
  page: Page,
  choose: (name: string, buffer: Buffer) => Promise<void>,
  bytes: Buffer,
): Promise<void> {
  // Safari before 26, then a private window.
  for (const [of, name] of [
    ['FileSystemFileHandle', 'createWritable'],
    ['StorageManager', 'getDirectory'],
  ]) {
    await page.evaluate(`globalThis.had = ${of}.prototype.${name}; delete ${of}.prototype.${name};`);
    await choose('tiny.gguf', bytes);
    await expect(page.locator('.field-problem')).toContainText('This window cannot store the files of a model');
    await page.evaluate(`${of}.prototype.${name} = globalThis.had;`);
    await choose('cut.gguf', bytes.subarray(0, -100));
    await expect(page.locator('.field-problem')).toContainText('The file is truncated');
  }
  await page.evaluate(() => {
    const { write } = FileSystemWritableFileStream.prototype;
    FileSystemWritableFileStream.prototype.write = async function (content) {
      FileSystemWritableFileStream.prototype.write = write;
      await write.call(this, (content as Uint8Array<ArrayBuffer>).subarray(0, 100));
      throw new DOMException('full', 'QuotaExceededError');
    };
  });
  await choose('My tiny.gguf', bytes);
  await expect(page.locator('.field-problem')).toContainText('The browser has no space left for My-tiny.gguf');
  expect(await storedIn(page, 'gguf'), 'a part of the file').toEqual([]);
}

test('a .gguf file: refused in a sentence, or its sizes are told, it is kept, and a run trains it', async ({
  page,
}) => {
  const bytes = Buffer.from(await shippedGguf());
  const choose = (name: string, buffer: Buffer) =>
    page.getByLabel('Or choose a .gguf file').setInputFiles({ name, mimeType: 'application/octet-stream', buffer });
  await openPage(page);
  await page.getByRole('radio', { name: /^Your model/ }).check();
  await choose('cut.gguf', bytes.subarray(0, -100));
  await expect(page.locator('.field-problem')).toHaveText(
    /^cut\.gguf has .* The file is truncated: download it again\.$/,
  );
  if (isFull) await expectUnstored(page, choose, bytes);
  const dropped = await page.evaluateHandle((content) => {
    const transfer = new DataTransfer();
    const letters = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
    transfer.items.add(new File([letters], 'My tiny.gguf'));
    return transfer;
  }, bytes.toString('base64'));
  await page.locator('.hub').dispatchEvent('drop', { dataTransfer: dropped });
  await expect(page.getByText('0.4 million')).toBeVisible();
  await expect(page.locator('.hub-facts')).toContainText('1 MB, stored in the browser');
  await page.getByRole('button', { name: 'Use this model' }).click();
  await expect(page.getByText('Settings filled in for My-tiny.gguf. Start reads it')).toBeVisible();

  await openPage(page, { ...TINY, steps: 1, 'model.path': 'My-tiny.gguf' });
  await page.getByRole('button', { name: /^Start/ }).click();
  await expectState(page, 'done');
  await stepInFull('a file that was not chosen is asked for', async () => {
    await openPage(page, { ...TINY, steps: 1, 'model.path': 'other.gguf' });
    await page.getByRole('button', { name: /^Start/ }).click();
    await expect(page.getByText('This browser does not keep other.gguf. Choose the file again')).toBeVisible();
  });
});
