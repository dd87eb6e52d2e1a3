/**
 * An engine in a page of a browser that Playwright controls. A worker of the page has the weights, rollout, gradients and optimizer, as in
 * any page; trainer, task and run folder stay in this Node process. An HTTP server on 127.0.0.1 serves the page and carries the messages.
 */

import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Page } from '@playwright/test';
import { DeviceLostError, NoAdapterError } from '../../errors.ts';
import { collectWeights } from '../../model/checkpoint/checkpoint.ts';
import type { Weights } from '../../model/weights/load.ts';
import type { EngineSpec } from '../../workers/engineSpec.ts';
import { createRemoteEngine } from '../../workers/remoteEngine.ts';
import engineCode from '../../engine.worker.ts?inline-worker';
import type { CommandEngine } from '../process/io.ts';
import { checkPlan, fitted } from '../../workers/memoryPlan.ts';
import { sayAdapter, sayMemory } from '../run/plan.ts';
import { MessageLink } from './messageLink.ts';
import type { PageAdapter } from './page.ts';
import pageCode from './page.ts?inline-worker';

const FILES: Record<string, [type: string, text: string]> = {
  '': ['text/html', '<!doctype html><html lang="en"><title>webgrpo</title><script src="page.js"></script></html>\n'],
  'page.js': ['text/javascript', pageCode],
  'engine.js': ['text/javascript', engineCode],
};

/** Opens an engine in a page, which navigates to this engine's address. Throws NoAdapterError, OutOfMemoryError and InputError. */
export async function openPageEngine(page: Page, spec: EngineSpec): Promise<CommandEngine> {
  const worker = new PageWorker();
  const leave = () => worker.fail('The page of the engine was closed');
  page.on('close', leave);
  page.on('crash', leave);
  try {
    await page.goto(await worker.listen());
    const found = await page.evaluate<PageAdapter>('webgrpo.adapter()');
    if ('problem' in found) throw new NoAdapterError(found.problem);
    const { maxArenaBytes, hasHalves, adapterSummary } = found;
    // The option `packed` is left out: quantized tensors of a file stay quantized only if the engine reads weights from the file on demand.
    // The engine in the page gets all weights in one message.
    const { judgeModel, packed: _, dtype, ...others } = spec;
    const asked = { ...others, ...(dtype && hasHalves && { dtype }), adapterSummary, maxArenaBytes };
    const maxBytes = spec.maxMemoryMib === undefined ? Infinity : spec.maxMemoryMib * 2 ** 20;
    const sizes = fitted({ ...asked, ...(judgeModel && { judgeModel }) }, maxBytes);
    sayMemory(spec, sizes, checkPlan(sizes, maxBytes));
    const { judgeModel: _judge, adapterSummary: _adapter, maxArenaBytes: _bytes, lowerToFit: _fitted, ...rest } = sizes;
    const weights = await collected(spec.weights);
    const judge = judgeModel && { judgeModel: { ...judgeModel, weights: await collected(judgeModel.weights) } };
    const engine = await createRemoteEngine(worker as unknown as Worker, { ...rest, weights, ...judge });
    const { adapter: summary } = engine.description;
    sayAdapter(summary);
    const lost = engine.untilLost().catch((error: Error) => asLost(error));
    const destroy = () => void engine.destroy().catch(() => worker.terminate());
    return { ...engine, adapter: summary, lost, destroy };
  } catch (error) {
    worker.terminate();
    throw error;
  }
}

/** Reads all weights into a Map, because a message cannot contain weights that are read on demand. */
const collected = async (weights: Weights) => (weights instanceof Map ? weights : collectWeights(weights));

const asLost = (error: Error): DeviceLostError =>
  error instanceof DeviceLostError ? error : new DeviceLostError('unknown', error.message);

/** The worker in the page, with the interface of a Worker, so that comlink can use it. */
class PageWorker extends EventTarget {
  /** Random part of every address, so that other pages and processes cannot send requests to this server. */
  readonly #secret = randomUUID();
  readonly #server = createServer((request, response) => void this.#answer(request, response));
  readonly #link = new MessageLink({
    send: (bytes) => this.#send(bytes),
    receive: ({ message }) => this.dispatchEvent(new MessageEvent('message', { data: message })),
    firstPort: 1,
  });
  #queue: Uint8Array[] = [];
  /** Response to the page's open request for the next message. */
  #waiting: ServerResponse | undefined;
  #hasEnded = false;

  /** Starts the server. Returns the address of the page. */
  async listen(): Promise<string> {
    this.#server.keepAliveTimeout = 0; // otherwise a request can meet the end of its connection
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(0, '127.0.0.1', resolve);
    });
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/${this.#secret}/`;
  }

  postMessage(message: unknown): void {
    if (!this.#hasEnded) this.#link.post(message);
    else queueMicrotask(() => this.#end('The page of the engine was closed'));
  }

  /** Rejects all pending calls of the engine with an error. */
  fail(message: string): void {
    if (this.#hasEnded) return;
    this.#end(message);
    this.terminate();
  }

  #end(message: string): void {
    this.dispatchEvent(Object.assign(new Event('error'), { message }));
  }

  terminate(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#link.close();
    this.#server.close();
    this.#server.closeAllConnections();
  }

  #send(bytes: Uint8Array): void {
    this.#queue.push(bytes);
    this.#flush();
  }

  #flush(): void {
    if (!this.#waiting || this.#queue.length === 0) return;
    this.#waiting.end(this.#queue.shift());
    this.#waiting = undefined;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const [, secret, path] = /^\/([^/]*)\/(.*)$/.exec(request.url ?? '') ?? [];
    const isPost = request.method === 'POST';
    if (secret !== this.#secret || !['message', ...(isPost ? ['died'] : Object.keys(FILES))].includes(path))
      return void response.writeHead(404).end();
    if (isPost) {
      const body = await bodyOf(request).catch(() => undefined);
      response.writeHead(204).end();
      if (body === undefined || this.#hasEnded) return;
      if (path === 'died') this.fail(body.toString());
      else this.#link.deliver(body);
    } else if (path === 'message') {
      response.on('close', () => {
        if (!response.writableEnded) this.fail('The page of the engine was left or closed');
      });
      this.#waiting = response.writeHead(200, { 'content-type': 'application/octet-stream' });
      this.#flush();
    } else {
      const [type, text] = FILES[path];
      response.writeHead(200, { 'content-type': `${type}; charset=utf-8` }).end(text);
    }
  }
}

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part as Buffer);
  return Buffer.concat(parts);
}
