/** Serves the gate of a test to the engines of its pages over HTTP. See `engine.worker.ts`. */

import { createServer } from 'node:http';
import type { Answer } from './engine.worker.ts';
import { type Moment, TestGate } from './gate.ts';
import { portOf } from '../hubServer.ts';

/** Starts a server for a gate on a free port. */
export async function serveGate(): Promise<{ gate: TestGate; port: number; close(): Promise<void> }> {
  const gate = new TestGate();
  const answer = async (moment: Moment, number: number): Promise<Answer> => {
    try {
      await gate.at(moment, number);
      return {};
    } catch (error) {
      const { name, message } = error as Error;
      return { fails: { name, message } };
    }
  };
  const server = createServer((request, response) => {
    const [, moment, number] = request.url?.split('/') ?? [];
    response.setHeader('access-control-allow-origin', '*');
    void answer(moment as Moment, Number(number)).then((told) => response.end(JSON.stringify(told)));
  });
  server.keepAliveTimeout = 0; // an idle connection stays open
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  const close = async () => {
    server.closeAllConnections();
    await new Promise((closed) => server.close(closed));
  };
  return { gate, port: portOf(server), close };
}
