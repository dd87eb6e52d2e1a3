/** Tests a worker that leaves a room while the room's server is unreachable. */

import { describe, expect, type MockInstance, test, vi } from 'vitest';
import type { NatsConnection } from '@nats-io/nats-core';
import { joinRoom } from '../../src/extensions/rooms/joinRoom.ts';
import { Controller } from '../room.ts';
import { connectByTcp, hasNatsServer, TestRoom } from '../natsServer.ts';

/** Milliseconds that a JetStream request waits for its response. */
const ANSWER_MS = 5000;
const until = <T>(value: () => T) => expect.poll(value);

describe.runIf(hasNatsServer())('a worker whose server is gone', () => {
  test('a worker leaves without an error while it waits for newer weights', async () => {
    const room = await TestRoom.start();
    const controller = await Controller.open(room, { trained: [], begun: 0 });
    const leaving = new AbortController();
    let mine!: NatsConnection;
    let wait!: MockInstance<typeof setTimeout>;
    try {
      await controller.rollouter.updateWeights(0);
      const joined = joinRoom({
        connect: async (asked) => (mine = await connectByTcp(asked)),
        ...{ address: room.address, code: room.code, name: 'leaves', signal: leaving.signal },
        open: async () => ({
          ...{ adapter: 'none', groupsAtOnce: 1, generate: async () => {}, destroy: () => {} },
          async useWeights() {
            await controller.rollouter.updateWeights(1);
            await controller.host.connection.flush();
            await mine.flush(); // it has received the newer weights
            await room.server.stop('SIGKILL');
            wait = vi.spyOn(globalThis, 'setTimeout');
          },
        }),
      });
      const waits = () => wait?.mock.calls.filter(([, ms]) => ms === ANSWER_MS) ?? [];
      await until(() => waits().length).toBeGreaterThan(0);
      leaving.abort();
      for (const [giveUp] of waits()) giveUp(); // as if that time had passed
      expect((await joined).version).toBe(0);
    } finally {
      vi.restoreAllMocks();
      leaving.abort();
      await controller.kill(); // its server is unreachable, too
      await room.end();
    }
  });
});
