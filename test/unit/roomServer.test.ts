/** Servers of rooms as the command line opens them: with TLS, one that runs already, and who finds a place. */

import { mkdtemp, rm } from 'node:fs/promises';
import { readFileSync } from 'node:fs';
import { request } from 'node:https';
import { connect as connectSocket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { type OpenedServer, connectInNode, openServer } from '../../src/cli/room/openRoom.ts';
import { enter, newUserKey } from '../../src/extensions/rooms/connect.ts';
import { workerRights } from '../../src/extensions/rooms/names.ts';
import { InputError } from '../../src/errors.ts';
import { Controller, fakeWorker, type Saved } from '../room.ts';
import { freePort, hasNatsServer, runningServer, selfSigned } from '../natsServer.ts';
import { skipTimers } from '../timers.ts';

const until = <T>(value: () => T | Promise<T>) => expect.poll(value, { timeout: 60_000, interval: 20 });
const fresh = (): Saved => ({ trained: [], begun: 0 });

describe.runIf(hasNatsServer())('the server of a room', { timeout: 120_000 }, () => {
  let folder: string;
  const ends: (() => unknown)[] = [];
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'webgrpo-room-'));
  });
  afterEach(async () => {
    vi.restoreAllMocks();
    for (const end of ends.splice(0).reverse()) await end();
    await rm(folder, { recursive: true, force: true });
  });
  const options = () => ({ folder: join(folder, 'room'), host: '127.0.0.1', port: -1, webSocketPort: -1 });
  const open = async (settings: Parameters<typeof openServer>[0]): Promise<OpenedServer> => {
    const opened = await openServer(settings);
    ends.push(() => opened.close());
    return opened;
  };
  /** What a line of the invitation has. */
  const invited = ({ invitation }: OpenedServer) => {
    const [, address, code] = /join (\S+) --code (\S+)/.exec(invitation[0])!;
    return { address, code };
  };
  const control = async ({ connection, access }: OpenedServer, saved = fresh()) => {
    const room = {
      connect: async () => connection,
      admit: access.admit.bind(access),
      revoke: access.revoke.bind(access),
    };
    const controller = await Controller.open(room, saved);
    ends.push(() => controller.close());
    await controller.rollouter.updateWeights(0);
    return controller;
  };

  test('with TLS: a certificate that is not trusted, a plain address, a server without TLS', async () => {
    const tls = selfSigned(folder);
    const own = await open({ server: { ...options(), tls }, maxWorkers: 4 });
    const { address, code } = invited(own);
    expect(address).toMatch(/^tls:/);
    const asked = { code, inbox: 'join', name: 'nobody' };
    await expect(enter(connectInNode, { ...asked, address })).rejects.toThrow(
      `The certificate of ${address} is not trusted here (self-signed certificate); name it, or who signed it, by NODE_EXTRA_CA_CERTS=FILE`,
    );
    const plain = address.replace('tls:', 'nats:');
    await expect(enter(connectInNode, { ...asked, address: plain })).rejects.toThrow(
      `The server at ${plain} takes connections by TLS alone; give its address as tls://.`,
    );
    const without = await open({ server: { ...options(), folder: join(folder, 'plain') }, maxWorkers: 4 });
    const stripped = invited(without).address.replace('nats:', 'tls:');
    await expect(enter(connectInNode, { ...asked, address: stripped })).rejects.toThrow(
      `The server at ${stripped} does not speak TLS; join by nats:// where nobody listens on the way`,
    );
    // Whoever does not ask either is told nothing but what the server is.
    const said = await new Promise<string>((resolve) => {
      let heard = '';
      const socket = connectSocket(Number(new URL(address).port), '127.0.0.1', () =>
        socket.write('CONNECT {}\r\nPING\r\n'),
      );
      socket.on('data', (data) => (heard += String(data))).on('close', () => resolve(heard));
    });
    expect(said).not.toContain('PONG');
  });

  test('with TLS: pages come by wss, with the certificate of the room', async () => {
    const tls = selfSigned(folder);
    const { invitation } = await open({ server: { ...options(), tls }, maxWorkers: 4 });
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

  test('one that runs already: a worker trains there, and its user can neither publish weights nor hear the controller', async () => {
    const { publish, subscribe } = workerRights('*');
    const page = readFileSync('docs/pipelines.md', 'utf8');
    for (const subject of [...publish, ...subscribe]) expect(page).toContain(JSON.stringify(subject));
    const running = await runningServer();
    ends.push(() => running.end());
    const server = options();
    const opened = await open({ server, maxWorkers: 1, running });
    const { address, code } = invited(opened);
    expect([address, code]).toEqual([running.address, 'worker:w']);
    const saved = fresh();
    const controller = await control(opened, saved);
    const workers = ['one', 'two'].map((name) => fakeWorker({ address, code }, { name }));
    for (const worker of workers) ends.push(async () => (worker.leave(), await worker.ended));
    await controller.train(6);
    expect([...saved.trained].sort()).toEqual(Array.from({ length: 6 }, (_, i) => `1.${i}`));
    const evil = await enter(connectInNode, { address, code, inbox: 'evil', name: 'evil' });
    ends.push(() => evil.close());
    for (const subject of [
      ...['$O.webgrpo-weights.C.x', '$KV.webgrpo-state.version', 'webgrpo.notice', 'webgrpo.prompt.mine'],
      ...['$JS.API.STREAM.DELETE.webgrpo-prompts', '$JS.API.DIRECT.GET.webgrpo-samples'],
      '$JS.API.DIRECT.GET.KV_webgrpo-state.$KV.webgrpo-state.secret',
    ])
      await expect(evil.request(subject, '{"seq":1}'), subject).rejects.toThrow(/permissions violation/i);
    const heard: string[] = [];
    evil.subscribe('_INBOX.*.>', {
      callback: (error, message) => void heard.push(error ? 'refused' : message.subject),
    });
    for (const subject of ['_INBOX-CONTROLLER.>', 'webgrpo.sample.*.*'])
      evil.subscribe(subject, { callback: (error) => void heard.push(error ? 'refused' : subject) });
    await until(() => heard.length).toBeGreaterThanOrEqual(2);
    await controller.train(8);
    expect(heard.filter((subject) => subject === 'refused')).toHaveLength(2);
    // Those of other workers it can: they share a user.
    expect(heard.filter((subject) => !/^refused$|^webgrpo\.prompt|^_INBOX\.U/.test(subject))).toEqual([]);
  });

  test.each([
    [
      'the password of the controller',
      { controller: 'controller:wrong' },
      /does not know user and password of --nats;/,
    ],
    ['the password of the workers', { worker: 'worker:wrong' }, /does not know user and password of --worker;/],
  ])('one that runs already: %s is wrong', async (_, wrong, sentence) => {
    const running = await runningServer();
    ends.push(() => running.end());
    skipTimers(500); // between two tries
    await expectRefusal(openServer({ server: options(), maxWorkers: 1, running: { ...running, ...wrong } }), sentence);
  });

  test('one that runs already: it has no JetStream, or is not there', async () => {
    const running = await runningServer({ jetStream: false });
    ends.push(() => running.end());
    const server = options();
    await expectRefusal(
      openServer({ server, maxWorkers: 1, running }),
      /^The NATS server at \S+ has no JetStream for the controller's user \(.+\); give its configuration "jetstream \{\}"/,
    );
    const address = `nats://127.0.0.1:${await freePort()}`;
    await expectRefusal(
      openServer({ server, maxWorkers: 1, running: { ...running, address } }),
      /^No NATS server answers at \S+ \(.*refused.*\); is it running there, and can this machine reach it\?$/,
    );
  });

  test('a worker that has left, or is silent in a full room, gives its place to another', async () => {
    const opened = await open({ server: options(), maxWorkers: 1 });
    const room = invited(opened);
    const controller = await control(opened);
    const there = () => controller.host.present;
    const join_ = (name: string) => {
      const worker = fakeWorker(room, { name });
      ends.push(async () => (worker.leave(), await worker.ended));
      return worker;
    };
    const first = join_('first');
    await until(there).toBe(1);
    expect(String(await fakeWorker(room, { name: 'second' }).ended)).toContain(
      'The room has 1 workers, and takes no more.',
    );
    first.leave();
    await first.ended;
    await expect.poll(there, { timeout: 5000, interval: 20 }).toBe(0); // before it would be silent
    const third = join_('third');
    await until(there).toBe(1);
    await third.kill();
    expect(String(await fakeWorker(room, { name: 'fourth' }).ended)).toContain('takes no more');
    const now = Date.now.bind(Date);
    vi.spyOn(Date, 'now').mockImplementation(() => now() + 60_000);
    expect(there()).toBe(0);
    join_('fifth');
    await until(there).toBe(1);
  });

  test('who was let in to a run that is over holds no place in the next', async () => {
    const first = await openServer({ server: options(), maxWorkers: 1 });
    const { id: key } = await newUserKey();
    expect(await first.access.admit({ name: 'old', key })).toEqual({ worker: key, own: true });
    await first.close();
    const second = await open({ server: options(), maxWorkers: 1 });
    expect(invited(second).code).toBe(invited(first).code);
    const { id: other } = await newUserKey();
    expect(await second.access.admit({ name: 'new', key: other })).toEqual({ worker: other, own: true });
  });
});

async function expectRefusal(opening: Promise<OpenedServer>, sentence: RegExp): Promise<void> {
  const error: unknown = await opening.then(
    (opened) => opened.close(),
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(InputError);
  expect((error as Error).message).toMatch(sentence);
}
