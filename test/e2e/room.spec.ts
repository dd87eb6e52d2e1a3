/** Tests the page as a worker of rooms, opened with `?room=`: over a WebSocket to a real nats-server, next to a worker in Node. */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from '@playwright/test';
import { expectNoViolations } from './axe.ts';
import { expectNoSideScroll, testInFull, test } from './demo.ts';
import { openFor, region, tile } from './roomPage.ts';

let parts: typeof import('./realRoom.ts');
test.beforeAll(async () => {
  parts = await import('./realRoom.ts');
  test.skip(!parts.hasNatsServer(), 'nats-server is not installed');
});

test("our page asks, joins, generates by the room's weights, and leaves", async ({ page, engine }) => {
  const real = await parts.realRoom();
  const { host, samples, rollouter, groups } = real;
  try {
    const { webSocket: webSocketUrl } = real.room.server;
    const sockets = await openFor(page, webSocketUrl, real.room.code);
    await expect(region(page)).toContainText(`Join the room at ${new URL(webSocketUrl).host}?`);
    expect(page.url()).not.toContain(real.room.code);
    expect(await page.evaluate(() => JSON.stringify([{ ...localStorage }, history.state]))).not.toContain(
      real.room.code,
    );
    await expect(page.getByRole('button', { name: 'Start' })).toHaveCount(0);
    await expectNoViolations(page, 'asked to join a room');
    expect(sockets).toEqual([]);
    const elsewhere = () => fetch('http://127.0.0.1:9/').catch((error: Error) => error.message);
    const blocked = page.waitForEvent('console', (message) => /Content Security Policy/.test(message.text()));
    await page.evaluate(elsewhere);
    await blocked;
    await page.getByRole('button', { name: 'Join', exact: true }).click();
    await expect(region(page).getByRole('status')).toHaveText('Working for the room.');
    await expect(tile(page, 'Status')).toHaveText('Waiting for problems');
    await expect(page.getByRole('heading', { level: 2, name: 'The room at' })).toBeFocused();
    await rollouter.start(groups.slice(0, 2));
    await expect.poll(() => samples.length).toBe(4);
    await expect(tile(page, 'Tries sent')).toHaveText('4');
    await expect(tile(page, 'Weights of step')).toHaveText('0');
    const { trajectory } = parts.sampleOf(samples[0], { problem: groups[0].problem, group: 0 });
    expect(trajectory.responseIds.length).toBeGreaterThan(0);
    expect(trajectory.logProbs.every((logProb) => logProb <= 0 && logProb > -30)).toBe(true);
    await rollouter.updateWeights(1);
    await expect(tile(page, 'Weights of step')).toHaveText('1');
    engine.upTo(8, 'turn'); // 24 more tries are started, so the page leaves in the middle of some
    await rollouter.start(groups.slice(2));
    await engine.reached(9, 'turn');
    await expect.poll(() => samples.length).toBeGreaterThan(4);
    await page.getByRole('button', { name: 'Leave' }).click();
    await expect(tile(page, 'Status')).toHaveText('Not in the room');
    const node = parts.fakeWorker(real.room, { name: 'node' });
    await expect.poll(() => samples.length).toBe(28);
    node.leave();
    await node.ended;
    const [byPage, byNode] = [...host.workers.values()];
    expect([byPage.name, byNode.name]).toEqual(['page', 'node']);
    expect(byPage.accepted).toBeGreaterThan(4);
    expect(byPage.accepted).toBeLessThan(28);
    expect(byPage.accepted + byNode.accepted).toBe(28);
  } finally {
    await real.end();
  }
});

test.describe('with TLS', () => {
  let folder: string;
  test.beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'webgrpo-tls-'));
  });
  test.afterEach(() => rm(folder, { recursive: true, force: true }));

  test.describe('a certificate that the browser trusts', () => {
    test.use({ ignoreHTTPSErrors: true });

    testInFull(
      'our page joins by wss, reports a lost connection, continues when it is back, and can leave without it',
      async ({ page }) => {
        const real = await parts.realRoom({ tls: parts.selfSigned(folder) });
        const { host, samples, rollouter, groups } = real;
        const status = region(page).getByRole('status');
        const heardAt = () => [...host.workers.values()][0].heardAt;
        const lost = 'Connection lost. Reconnecting...';
        try {
          const { webSocket: webSocketUrl } = real.room.server;
          const sockets = await openFor(page, webSocketUrl, real.room.code);
          await page.getByRole('button', { name: 'Join', exact: true }).click();
          await expect(status).toHaveText('Working for the room.');
          await real.room.server.stop('SIGKILL');
          await expect(status).toHaveText(lost);
          await expect(status).toHaveClass('notice warning');
          await real.room.crash();
          await expect(status).toHaveText('Working for the room.');
          // A group that is given before both ends are back is lost, and offered again only after the room's ackWaitMs.
          const back = Date.now();
          await expect.poll(heardAt).toBeGreaterThan(back);
          await rollouter.start(groups.slice(0, 2));
          await expect.poll(() => samples.length).toBe(4);
          await real.room.server.stop('SIGKILL');
          await expect(status).toHaveText(lost);
          await page.getByRole('button', { name: 'Leave' }).click();
          await expect(tile(page, 'Status')).toHaveText('Not in the room');
          await expect(status).toHaveText('This machine has left the room.');
          expect(new Set(sockets.map((url) => new URL(url).origin))).toEqual(new Set([webSocketUrl]));
          expect(webSocketUrl).toMatch(/^wss:/);
          await real.room.crash();
        } finally {
          await real.end();
        }
      },
    );
  });

  testInFull(
    'a certificate that the browser does not trust ends in an error that says what to do',
    async ({ page, context }) => {
      const room = await parts.TestRoom.start({ tls: parts.selfSigned(folder) });
      const { webSocket: webSocketUrl } = room.server;
      try {
        await openFor(page, webSocketUrl, room.code);
        await page.getByRole('button', { name: 'Join', exact: true }).click();
        const problem = region(page).locator('.notice.error');
        await expect(problem).toContainText(`No secure connection to ${webSocketUrl}. The server may be down`);
        const shown = `https://${new URL(webSocketUrl).host}/`;
        await expect(problem).toContainText(`Open ${shown} in another tab`);
        const tab = await context.newPage();
        await expect(tab.goto(shown)).rejects.toThrow('ERR_CERT_AUTHORITY_INVALID'); // the message of the browser is there
        await tab.close();
        await expectNoViolations(page, 'a certificate that is not trusted');
        await expect(page.getByRole('button', { name: 'Join again' })).toBeEnabled();
      } finally {
        await room.end();
      }
    },
  );
});

testInFull('our page respects a refusal, and reports errors of code, server and address', async ({ page }) => {
  const room = await parts.TestRoom.start();
  const { webSocket: webSocketUrl } = room.server;
  const problem = region(page).locator('.notice.error');
  try {
    const sockets = await openFor(page, webSocketUrl, room.code);
    await page.getByRole('button', { name: 'Cancel' }).click();
    await expect(page.getByRole('button', { name: 'Start' })).toBeEnabled();
    await expect(page).not.toHaveURL(/room/);
    expect(sockets).toEqual([]);
    const blocked = page.waitForEvent('console', (message) => /Content Security Policy/.test(message.text()));
    await page.evaluate((address) => void new WebSocket(address), webSocketUrl);
    await blocked;

    await openFor(page, webSocketUrl, '');
    await page.getByLabel('Join code').fill((await parts.newUserKey()).seed);
    await page.getByRole('button', { name: 'Join', exact: true }).click();
    await expect(problem).toHaveText(
      `The room at ${webSocketUrl} does not know this join code. Use the one that it printed.`,
    );
    await page.getByLabel('Join code').fill('1234');
    await page.getByRole('button', { name: 'Join again' }).click();
    await expect(problem).toContainText('The join code cannot be read');
    await expectNoViolations(page, 'not let into a room');

    await openFor(page, 'ws://127.0.0.1:9', room.code);
    await page.getByRole('button', { name: 'Join', exact: true }).click();
    await expect(problem).toContainText('No room answers at ws://127.0.0.1:9');

    await page.goto(`/?room=${encodeURIComponent(room.address)}#code=${room.code}`);
    await expect(problem).toContainText('a page takes ws://HOST:PORT or wss://HOST:PORT');
  } finally {
    await room.end();
  }
});

testInFull('a closed tab returns its groups immediately', async ({ page, engine }) => {
  engine.upTo(0, 'turn');
  // The page can hold a third group, and requests one all the time.
  const real = await parts.realRoom({ problems: 2, ackWaitMs: 3_600_000 }); // no limit returns them
  const { host, samples, rollouter, groups } = real;
  try {
    await openFor(page, real.room.server.webSocket, real.room.code);
    await page.getByRole('button', { name: 'Join', exact: true }).click();
    await expect(region(page).getByRole('status')).toHaveText('Working for the room.');
    await rollouter.start(groups);
    const held = () => [...host.workers.keys()].reduce((sum, id) => sum + host.leases.heldBy(id, Date.now()), 0);
    await expect.poll(held).toBe(2);
    await engine.reached(1, 'turn'); // the tries have also arrived in the engine
    await page.close();
    expect(samples.length).toBeLessThan(4);
    const node = parts.fakeWorker(real.room, { name: 'node' });
    await expect.poll(() => samples.length).toBe(4);
    node.leave();
    await node.ended;
  } finally {
    await real.end();
  }
});

testInFull('on a phone the question and the work fit the screen', async ({ page }) => {
  const real = await parts.realRoom();
  await page.setViewportSize({ width: 360, height: 740 });
  const expectToFit = async (what: string) => {
    await expectNoSideScroll(page, what);
    await expectNoViolations(page, what);
  };
  try {
    await openFor(page, `wss://a-${'long-'.repeat(20)}host.example.org:4223`, '');
    await expectToFit('asked');
    await openFor(page, real.room.server.webSocket, '');
    await page.getByLabel('Join code').fill((await parts.newUserKey()).seed);
    await page.getByRole('button', { name: 'Join', exact: true }).click();
    await expect(region(page).locator('.notice.error')).toBeVisible();
    await expectToFit('not let in');
    await page.getByLabel('Join code').fill(real.room.code);
    await page.getByRole('button', { name: 'Join again' }).click();
    await expect(region(page).getByRole('status')).toHaveText('Working for the room.');
    for (const text of ['Status', 'Tokens per second'])
      expect(await tile(page, text).evaluate((dd) => dd.scrollWidth - dd.clientWidth), text).toBe(0);
    await expectToFit('working');
  } finally {
    await real.end();
  }
});
