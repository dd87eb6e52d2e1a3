/** Keeps the consumers of a room's two queues in order. The server stores them, and can corrupt them in a crash. */

import type { JetStreamManager } from '@nats-io/jetstream';
import type { KV } from '@nats-io/kv';
import type { NatsConnection } from '@nats-io/nats-core';
import { isMissing } from './connect.ts';
import { PROMPTS, SAMPLES, STATE } from './names.ts';

type Queue = Pick<typeof PROMPTS, 'stream' | 'consumer'>;

const NANOSECONDS = 1e6;

/** Creates and repairs the consumers of a room's queues. */
export class Consumers {
  readonly #connection: NatsConnection;
  readonly #jsm: JetStreamManager;
  readonly #state: KV;
  readonly #ackWaitMs: number;

  constructor(connection: NatsConnection, jsm: JetStreamManager, state: KV, ackWaitMs: number) {
    this.#connection = connection;
    this.#jsm = jsm;
    this.#state = state;
    this.#ackWaitMs = ackWaitMs;
  }

  /**
   * Recreates consumers that are missing, that are older than the server's last start, or that hold back messages without a client. After a
   * crash, a consumer can remember deliveries of lost messages and then skip the next messages. Stored messages are delivered again, also
   * to workers other than those that hold them.
   */
  async check(): Promise<void> {
    const server = this.#connection.info?.server_id ?? '';
    const known = (await this.#state.get(STATE.server))?.string();
    for (const queue of [PROMPTS, SAMPLES])
      if (server !== known || !(await this.#works(queue))) await this.#makeAnew(queue);
    if (server !== known) await this.#state.put(STATE.server, server);
  }

  async #works({ stream, consumer }: Queue): Promise<boolean> {
    try {
      const { config, delivered, num_ack_pending: awaited } = await this.#jsm.consumers.info(stream, consumer);
      if (config.ack_wait !== this.#ackWaitMs * NANOSECONDS) return false;
      if (awaited > 0) return true;
      const { state } = await this.#jsm.streams.info(stream);
      return state.messages === 0 || state.first_seq > delivered.stream_seq;
    } catch (error) {
      if (isMissing(error)) return false;
      throw error;
    }
  }

  async #makeAnew({ stream, consumer }: Queue): Promise<void> {
    const { AckPolicy } = await import('@nats-io/jetstream');
    await this.#jsm.consumers.delete(stream, consumer).catch((error: unknown) => {
      if (!isMissing(error)) throw error;
    });
    const settings = { ack_wait: this.#ackWaitMs * NANOSECONDS, max_ack_pending: -1 };
    await this.#jsm.consumers.add(stream, { durable_name: consumer, ack_policy: AckPolicy.Explicit, ...settings });
  }
}
