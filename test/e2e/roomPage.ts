/** Code that test/e2e/room.spec.ts runs in a page: a worker of a room over a WebSocket, with invented samples. */

import { connectByWebSocket } from '../../src/extensions/rooms/connect.ts';
import { joinRoom } from '../../src/extensions/rooms/joinRoom.ts';
import type { Status } from '../../src/extensions/rooms/messages.ts';

export interface RoomPage {
  /** Joins the room as a worker. Resolves when the worker has left. */
  join(address: string, code: string): Promise<Status>;
  leave(): void;
}

const leaving = new AbortController();
const room: RoomPage = {
  leave: () => leaving.abort(),
  join: (address, code) =>
    joinRoom({
      ...{ connect: connectByWebSocket, address, code, name: 'page', signal: leaving.signal },
      open: async () => ({
        ...{ adapter: 'none', groupsAtOnce: 2, useWeights: async () => {}, destroy: () => {} },
        async generate({ uid, n }, _, put) {
          for (let s = 0; s < n; s++)
            await put({
              key: `${uid}_${s}`,
              tags: {},
              columns: { response: Uint32Array.of(s), reward: 1, sample: `answer of ${uid}` },
            });
        },
      }),
    }),
};
Object.assign(globalThis, { room });
