/**
 * The `fetch` of a connection by Streamable HTTP: it ends the request of a call that was given up, bounds what a server sends,
 * and tells when an answer ends before it was complete, so that no call waits for what cannot come.
 */

import { MAX_MESSAGE_BYTES } from './stdio.ts';

type Id = string | number;

/** Milliseconds that the reader of a stream has for what it has been given. */
const READ_MS = 100;

export class HttpRequests {
  /** Of requests that wait for their answer; undefined `isResumable` = its stream is open. */
  readonly #open = new Map<Id, { abort: AbortController; isResumable?: boolean }>();
  readonly #fail: (id: Id) => void;

  /** @param fail gives a request the answer that there will be none */
  constructor(fail: (id: Id) => void) {
    this.#fail = fail;
  }

  readonly fetch = async (url: string | URL, init: RequestInit = {}): Promise<Response> => {
    const message = typeof init.body === 'string' ? (JSON.parse(init.body) as Sent) : {};
    if (message.method === 'notifications/cancelled') this.#giveUp(message.params?.requestId);
    const { id } = message;
    if (id === undefined || message.method === undefined) return bounded(await fetch(url, init));
    const abort = new AbortController();
    this.#open.set(id, { abort });
    const signals = init.signal ? [init.signal, abort.signal] : [abort.signal];
    try {
      const response = await fetch(url, { ...init, signal: AbortSignal.any(signals) });
      if (response.ok) return bounded(response, (isResumable) => this.#ended(id, isResumable));
      this.#open.delete(id); // the caller hears of it
      return response;
    } catch (error) {
      this.#open.delete(id);
      throw error;
    }
  };

  /** A message has come. */
  answered(id: Id): void {
    this.#open.delete(id);
  }

  /** Streams that broke off are not taken up again. */
  giveUpResuming(): void {
    for (const [id, { isResumable }] of [...this.#open]) if (isResumable) this.#failNow(id);
  }

  #giveUp(id: Id | undefined): void {
    if (id === undefined) return;
    this.#open.get(id)?.abort.abort();
    this.#open.delete(id);
  }

  /** Its stream has ended; one with event ids is taken up again by the SDK. */
  #ended(id: Id, isResumable: boolean): void {
    const request = this.#open.get(id);
    if (!request) return;
    request.isResumable = isResumable;
    if (!isResumable) setTimeout(() => this.#failNow(id), READ_MS);
  }

  #failNow(id: Id): void {
    if (this.#open.delete(id)) this.#fail(id);
  }
}

interface Sent {
  id?: Id;
  method?: string;
  params?: { requestId?: Id };
}

/** The response with a body that breaks off when it is too long, and says when it has ended, however. */
function bounded(response: Response, ended: (isResumable: boolean) => void = () => {}): Response {
  const { body, status, statusText, headers } = response;
  if (!body) {
    ended(false);
    return response;
  }
  const reader = body.getReader();
  let bytes = 0;
  let isResumable = false;
  const counted = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { value, done } = await reader.read();
        if (done) {
          controller.close();
          return ended(isResumable);
        }
        isResumable ||= /(^|\n)id:/.test(new TextDecoder().decode(value.subarray(0, 4096)));
        bytes += value.length;
        if (bytes > MAX_MESSAGE_BYTES) throw new Error(`more than ${MAX_MESSAGE_BYTES} bytes`);
        controller.enqueue(value);
      } catch (error) {
        void reader.cancel().catch(() => {});
        controller.error(error);
        ended(isResumable && bytes <= MAX_MESSAGE_BYTES);
      }
    },
    cancel: (reason) => reader.cancel(reason),
  });
  return new Response(counted, { status, statusText, headers });
}
