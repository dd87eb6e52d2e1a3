/**
 * The `fetch` that the SDK uses for Streamable HTTP. It aborts the HTTP request of a cancelled call, and limits the size of responses. If
 * the response to a call ends without an answer, the call fails instead of waiting forever.
 */

import { MAX_MESSAGE_BYTES } from './stdio.ts';

type Id = string | number;

/** Milliseconds between the end of a stream and the failure of its request, in which the SDK can still process what it has received. */
const READ_MS = 100;

/** Tracks the requests of one connection until they are answered. */
export class HttpRequests {
  /**
   * Requests without an answer. `isResumable` is set when the stream of the response has ended before the answer: true if the SDK can
   * resume the stream.
   */
  readonly #open = new Map<Id, { abort: AbortController; isResumable?: boolean }>();
  readonly #fail: (id: Id) => void;

  /** @param fail called with the id of a request that will get no answer, to answer it with an error */
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
      this.#open.delete(id); // the caller receives the error response
      return response;
    } catch (error) {
      this.#open.delete(id);
      throw error;
    }
  };

  /** Called when the answer to a request has arrived. */
  answered(id: Id): void {
    this.#open.delete(id);
  }

  /** Called when the SDK no longer tries to resume streams: fails the requests whose stream has ended. */
  giveUpResuming(): void {
    for (const [id, { isResumable }] of this.#open) if (isResumable) this.#failNow(id);
  }

  #giveUp(id: Id | undefined): void {
    if (id === undefined) return;
    this.#open.get(id)?.abort.abort();
    this.#open.delete(id);
  }

  /** Called when the stream of a request has ended. The SDK resumes a stream whose events have ids; otherwise the request fails. */
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

/** Returns the response with a body that fails beyond MAX_MESSAGE_BYTES. Calls `ended` when the body ends for any reason. */
function bounded(response: Response, ended: (isResumable: boolean) => void = () => {}): Response {
  const { body, status, statusText, headers } = response;
  if (!body) {
    ended(false);
    return response;
  }
  let bytes = 0;
  let isResumable = false;
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      isResumable ||= /(^|\n)id:/.test(new TextDecoder().decode(chunk.subarray(0, 4096)));
      bytes += chunk.length;
      if (bytes > MAX_MESSAGE_BYTES) throw new Error(`more than ${MAX_MESSAGE_BYTES} bytes`);
      controller.enqueue(chunk);
    },
  });
  const over = () => ended(isResumable && bytes <= MAX_MESSAGE_BYTES);
  void body.pipeTo(writable).then(over, over);
  return new Response(readable, { status, statusText, headers });
}
