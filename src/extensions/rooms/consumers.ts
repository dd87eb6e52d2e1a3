/** Keeps the NATS consumer of a room's samples usable. The server stores its state, which a crash can corrupt. */

import type { JetStreamManager } from '@nats-io/jetstream';
import type { KV } from '@nats-io/kv';
import type { NatsConnection } from '@nats-io/nats-core';
import { isMissing } from './connect.ts';
import { SAMPLES, STATE } from './names.ts';

const NANOSECONDS = 1e6;

/** Creates and repairs the NATS consumer that delivers a room's samples to the controller. */
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
   * Recreates the consumer if it is missing, if the server was restarted since it was created, or if it does not deliver stored messages.
   * After a crash a consumer can believe that it has delivered messages that were lost, and then skips as many new ones. A new consumer
   * delivers all stored messages again.
   */
  async check(): Promise<void> {
    const server = this.#connection.info?.server_id ?? '';
    const known = (await this.#state.get(STATE.server))?.string();
    if (server !== known || !(await this.#works())) await this.#makeAnew();
    if (server !== known) await this.#state.put(STATE.server, server);
  }

  async #works(): Promise<boolean> {
    const { stream, consumer } = SAMPLES;
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

  async #makeAnew(): Promise<void> {
    const { stream, consumer } = SAMPLES;
    const { AckPolicy } = await import('@nats-io/jetstream');
    await this.#jsm.consumers.delete(stream, consumer).catch((error: unknown) => {
      if (!isMissing(error)) throw error;
    });
    const settings = { ack_wait: this.#ackWaitMs * NANOSECONDS, max_ack_pending: -1 };
    await this.#jsm.consumers.add(stream, { durable_name: consumer, ack_policy: AckPolicy.Explicit, ...settings });
  }
}
