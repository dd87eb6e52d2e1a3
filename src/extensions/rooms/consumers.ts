/** The consumers of a room's two queues, which its server keeps, and makes mistakes with. */

import type { JetStreamManager } from '@nats-io/jetstream';
import type { KV } from '@nats-io/kv';
import type { NatsConnection } from '@nats-io/nats-core';
import { isMissing } from './connect.ts';
import { PROMPTS, SAMPLES, STATE } from './names.ts';

type Queue = Pick<typeof PROMPTS, 'stream' | 'consumer'>;

const NANOSECONDS = 1e6;

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
   * Makes consumers again where the server has started again since they were made (one that crashed may remember deliveries of messages
   * that it has lost, and passes over the next ones in their places), where one holds back messages that no client has, and where there is
   * none. What is stored is delivered again, also to others than those who have it.
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
