/**
 * A room for webgrpo's page: the default recipe on a real nats-server, with a controller that only counts samples. Spec files import this
 * module within their tests, because Playwright compiles all that a file imports before the first test of any file starts.
 */

import { existsSync, readFileSync } from 'node:fs';
import { parseTrainConfig } from '../../src/extensions/yaml/text.ts';
import type { ServerOptions } from '../../src/cli/room/natsServer.ts';
import type { ExperienceRecord } from '../../src/grpo/pipeline/record.ts';
import { loadCheckpoint } from '../../src/model/checkpoint/checkpoint.ts';
import { openShippedTask } from '../../src/extensions/tasks/open.ts';
import { NatsRollouter } from '../../src/extensions/rooms/natsRollouter.ts';
import { RoomHost } from '../../src/extensions/rooms/roomHost.ts';
import { TestRoom } from '../natsServer.ts';

export { sampleOf } from '../../src/extensions/pipelines/records.ts';
export { newUserKey } from '../../src/extensions/rooms/connect.ts';
export { hasNatsServer, selfSigned, TestRoom } from '../natsServer.ts';
export { fakeWorker } from '../room.ts';

interface RealRoomOptions {
  overrides?: string[];
  /** Number of groups that the controller offers to workers. */
  problems?: number;
  tls?: ServerOptions['tls'];
  /** Milliseconds after which a worker that says nothing loses its groups. Default: so many that no slow worker does. */
  ackWaitMs?: number;
}

export async function realRoom({ overrides = [], problems = 14, tls, ackWaitMs = 60_000 }: RealRoomOptions = {}) {
  const room = await TestRoom.start({ tls });
  const source = 'configs/gsm8k-tool.yaml';
  const small = ['rollout.n=2', 'rollout.maxNumSeqs=4', 'data.maxResponseLength=24', ...overrides];
  const config = parseTrainConfig(readFileSync(source, 'utf8'), { source, overrides: small });
  const connection = await room.connect();
  const host = await RoomHost.open(connection, {
    ...{ config: { ...config }, ackWaitMs, resume: false },
  });
  const file = (name: string) => readFileSync(`checkpoints/gsm8k-tool/${name}`);
  const { weights: _, ...model } = await loadCheckpoint((name) =>
    Promise.resolve(existsSync(`checkpoints/gsm8k-tool/${name}`) ? file(name) : undefined),
  );
  await host.weights.put('model', Buffer.from(JSON.stringify(model)));
  await host.weights.put('base', new Uint8Array(file('model.safetensors')));
  const samples: ExperienceRecord[] = [];
  const rollouter = new NatsRollouter(host, {
    ...{ n: 2, check: () => undefined, exportWeights: async () => new Uint8Array(file('model.safetensors')) },
    put: async (records) => void samples.push(...records),
  });
  await rollouter.updateWeights(0);
  const task = await openShippedTask(config.task, {
    readText: () => Promise.reject(new Error('no file')),
    loadReward: () => Promise.reject(new Error('no reward')),
  });
  return {
    ...{ room, host, samples, rollouter },
    groups: Array.from({ length: problems }, (_, number) => ({ number, step: 1, problem: task.train(number, 1) })),
    async end() {
      await rollouter.close();
      await connection.close();
      await room.end();
    },
  };
}
