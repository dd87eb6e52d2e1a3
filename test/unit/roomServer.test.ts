/** Tests servers of rooms as the command line opens them: with TLS, an existing one, and which clients are admitted. */

import { mkdtemp, rm } from 'node:fs/promises';
import { readFileSync } from 'node:fs';
import { request } from 'node:https';
import { connect as connectSocket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type OpenedServer, connectInNode, openServer, startOwn } from '../../src/cli/room/openRoom.ts';
import { enter } from '../../src/extensions/rooms/connect.ts';
import { WORKER_RIGHTS } from '../../src/extensions/rooms/names.ts';
import { Controller, type ControllerOptions, fakeWorker, type Saved } from '../room.ts';
import { hasNatsServer, hasOpenssl, runningServer, selfSigned } from '../natsServer.ts';
import { refusalBy } from '../refusal.ts';

const until = <T>(value: () => T | Promise<T>) => expect.poll(value);
const fresh = (): Saved => ({ trained: [], begun: 0 });

describe.runIf(hasNatsServer())('the server of a room', () => {
  let folder: string;
  const ends: (() => unknown)[] = [];
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'webgrpo-room-'));
  });
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end();
    await rm(folder, { recursive: true, force: true });
  });
  const options = () => ({ folder: join(folder, 'room'), host: '127.0.0.1', port: -1, webSocketPort: -1 });
  const open = async (...settings: Parameters<typeof openServer>): Promise<OpenedServer> => {
    const opened = await openServer(...settings);
    ends.push(() => opened.close());
    return opened;
  };
  /** Returns the address and the code in the command of an invitation. */
  const invited = ({ invitation }: OpenedServer) => {
    const [, address, code] = /join (\S+) --code (\S+)/.exec(invitation[0])!;
    return { address, code };
  };
  const control = async ({ connection }: OpenedServer, saved = fresh(), more: ControllerOptions = {}) => {
    const controller = await Controller.open({ connect: async () => connection }, saved, more);
    ends.push(() => controller.close());
    await controller.rollouter.updateWeights(0);
    return controller;
  };

  test.skipIf(!hasOpenssl)(
    'with TLS: a certificate that is not trusted, a plain address, a server without TLS',
    async () => {
      const tls = selfSigned(folder);
      const own = await open({ ...options(), tls });
      const { address, code } = invited(own);
      expect(address).toMatch(/^tls:/);
      const asked = { code, inbox: 'join', name: 'nobody' };
      await expect(enter(connectInNode, { ...asked, address })).rejects.toThrow(
        `The certificate of ${address} is not trusted here (self-signed certificate). Give it, or its issuer, as NODE_EXTRA_CA_CERTS=FILE`,
      );
      const plain = address.replace('tls:', 'nats:');
      await expect(enter(connectInNode, { ...asked, address: plain })).rejects.toThrow(
        `The server at ${plain} accepts only TLS. Give its address as tls://.`,
      );
      const without = await open({ ...options(), folder: join(folder, 'plain') });
      const stripped = invited(without).address.replace('nats:', 'tls:');
      await expect(enter(connectInNode, { ...asked, address: stripped })).rejects.toThrow(
        `The server at ${stripped} does not speak TLS. Join with nats:// on a network that you trust`,
      );
      // A client that sends no credentials receives only the server's own INFO message.
      const said = await new Promise<string>((resolve) => {
        let heard = '';
        const socket = connectSocket(Number(new URL(address).port), '127.0.0.1', () =>
          socket.write('CONNECT {}\r\nPING\r\n'),
        );
        socket.on('data', (data) => (heard += String(data))).on('close', () => resolve(heard));
      });
      expect(said).not.toContain('PONG');
    },
  );

  test.skipIf(!hasOpenssl)('with TLS: pages connect by wss, with the certificate of the room', async () => {
    const tls = selfSigned(folder);
    const { invitation } = await open({ ...options(), tls });
    const [, url] = /\?room=(wss:[^#]+)#code=SU/.exec(invitation[1])!;
    const headers = {
      ...{ Connection: 'Upgrade', Upgrade: 'websocket' },
      'Sec-WebSocket-Version': '13',
      'Sec-WebSocket-Key': 'AAAAAAAAAAAAAAAAAAAAAA==',
    };
    const greeting = (ca?: string) =>
      new Promise<string>((resolve, reject) => {
        const asking = request(url.replace('wss:', 'https:'), { headers, ...(ca && { ca }) });
        asking.on('upgrade', (_, socket, head) => {
          let heard = '';
          const hear = (data: Buffer) => {
            heard += data.toString('latin1');
            if (!heard.includes('}')) return;
            resolve(heard);
            socket.destroy();
          };
          hear(head);
          socket.on('data', hear);
        });
        asking.on('error', reject).end();
      });
    expect(await greeting(readFileSync(tls.cert, 'utf8'))).toMatch(/INFO \{.*"server_name":"webgrpo"/);
    await expect(greeting()).rejects.toThrow('self-signed certificate');
  });

  test('on an existing server, workers have the rights of docs/guides/rooms.md', async () => {
    const page = readFileSync('docs/guides/rooms.md', 'utf8');
    for (const subject of [...WORKER_RIGHTS.publish, ...WORKER_RIGHTS.subscribe])
      expect(page).toContain(JSON.stringify(subject));
    const running = await runningServer();
    ends.push(() => running.end());
    const opened = await open(options(), running);
    const { address, code } = invited(opened);
    expect([address, code]).toEqual([running.address, 'worker:w']);
    const saved = fresh();
    const controller = await control(opened, saved);
    const workers = ['one', 'two'].map((name) => fakeWorker({ address, code }, { name }));
    for (const worker of workers) ends.push(async () => (worker.leave(), await worker.ended));
    await controller.train(6);
    expect([...saved.trained].sort()).toEqual(Array.from({ length: 6 }, (_, i) => `1.${i}`));
  });

  test.each([
    [
      'the password of the controller',
      { controller: 'controller:wrong' },
      /does not know user and password of --nats\./,
    ],
    ['the password of the workers', { worker: 'worker:wrong' }, /does not know user and password of --worker\./],
  ])('one that runs already: %s is wrong', async (_, wrong, sentence) => {
    const running = await runningServer();
    ends.push(() => running.end());
    await expectRefusal(openServer(options(), { ...running, ...wrong }), sentence);
  });

  test('an existing server without JetStream, or unreachable, is an error', async () => {
    const running = await runningServer({ jetStream: false });
    ends.push(() => running.end());
    await expectRefusal(
      openServer(options(), running),
      /^The NATS server at \S+ has no JetStream for the controller's user \(.+\)\. Give its configuration "jetstream \{\}"/,
    );
    const address = 'nats://127.0.0.1:9'; // a port that no server uses
    await expectRefusal(
      openServer(options(), { ...running, address }),
      /^No NATS server answers at \S+ \(.*refused.*\)\. Check that it runs there and that this machine can reach it\.$/,
    );
  });

  test('a worker that has left, or is silent in a full room, is replaced by another', async () => {
    const opened = await open(options());
    const room = invited(opened);
    const controller = await control(opened, fresh(), { maxWorkers: 1, ackWaitMs: 3_600_000 }); // no silence by the clock
    const there = () => controller.host.present();
    const join_ = (name: string) => {
      const worker = fakeWorker(room, { name });
      ends.push(async () => (worker.leave(), await worker.ended));
      return worker;
    };
    const first = join_('first');
    await until(there).toBe(1);
    expect(String(await fakeWorker(room, { name: 'second' }).ended)).toContain('The room is full: it has 1 workers.');
    first.leave();
    await first.ended;
    await until(there).toBe(0);
    const third = join_('third');
    await until(there).toBe(1);
    await third.kill();
    expect(String(await fakeWorker(room, { name: 'fourth' }).ended)).toContain('The room is full');
    controller.clock.ms += 4_000_000;
    expect(there()).toBe(0);
    join_('fifth');
    await until(there).toBe(1);
  });

  test('the server of a killed controller, and a taken port, are errors', async () => {
    const first = await startOwn(options());
    const { nats: port, webSocket: webSocketPort } = first.ports;
    const pid = Number(readFileSync(join(folder, 'room', 'nats.pid'), 'utf8'));
    await expectRefusal(openServer(options()), new RegExp(`as process ${pid}\\. End it \\("kill ${pid}"\\)`));
    const beside = { ...options(), folder: join(folder, 'beside'), port, webSocketPort };
    await expectRefusal(
      openServer(beside),
      /did not start: .*address already in use.*\. Give another port with --port/,
    );
    await first.stop();
    const second = await open(options());
    expect(invited(second).code).toBe(first.worker);
  });
});

const expectRefusal = async (opening: Promise<OpenedServer>, sentence: RegExp): Promise<void> =>
  expect(await refusalBy(opening.then((opened) => opened.close()))).toMatch(sentence);
