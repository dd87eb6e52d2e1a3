/** Script of the page that `pageEngine.ts` serves: starts the engine's worker and carries its messages to and from Node. */

import { NoAdapterError } from '../../errors.ts';
import { bindingBytes, offersHalves, requestAdapter } from '../../gpu/adapter.ts';
import { MessageLink } from './messageLink.ts';

/** Properties of the page's adapter that Node needs before the engine exists. */
export type PageAdapter = { problem: string } | { maxArenaBytes: number; hasHalves: boolean };

/** Called by Node. */
async function adapter(): Promise<PageAdapter> {
  try {
    return { maxArenaBytes: bindingBytes((await requestAdapter()).limits), hasHalves: await offersHalves() };
  } catch (error) {
    if (!(error instanceof NoAdapterError)) throw error;
    return { problem: error.message };
  }
}

const worker = new Worker('engine.js');
let sent: Promise<unknown> = Promise.resolve();
/** Sends a request to Node's server after all earlier ones. A failure is not handled, because Node has ended then and closes the page. */
const post = (path: string, body: BodyInit) => {
  sent = sent.then(() => fetch(path, { method: 'POST', body }));
};
const link = new MessageLink({
  send: (bytes) => post('message', bytes),
  receive: ({ message, transfer }) => worker.postMessage(message, transfer),
  firstPort: 2,
});
worker.addEventListener('message', ({ data }) => link.post(data));
worker.addEventListener('error', ({ message }) => post('died', message));

/** Passes Node's messages to the worker. Each response of Node's server is one message. */
async function receive(): Promise<never> {
  for (;;) link.deliver(new Uint8Array(await (await fetch('message')).arrayBuffer()));
}

Object.assign(globalThis, { webgrpo: { adapter } });
void receive();
