/** Script of the page that `pageEngine.ts` serves. Starts the engine's worker, and carries messages between this worker and Node. */

import { NoAdapterError } from '../../errors.ts';
import { type AdapterSummary, bindingBytes, offersHalves, requestAdapter, summaryOf } from '../../gpu/adapter.ts';
import { MessageLink } from './messageLink.ts';

/** Properties of the page's adapter that Node needs before the engine exists. */
export type PageAdapter =
  | { problem: string }
  | { maxArenaBytes: number; hasHalves: boolean; adapterSummary: AdapterSummary };

/** Returns the properties of the adapter. Node calls this function in the page. */
async function adapter(): Promise<PageAdapter> {
  try {
    const { limits, info, features } = await requestAdapter();
    const adapterSummary = summaryOf(info, features);
    return { maxArenaBytes: bindingBytes(limits), hasHalves: await offersHalves(), adapterSummary };
  } catch (error) {
    if (!(error instanceof NoAdapterError)) throw error;
    return { problem: error.message };
  }
}

const worker = new Worker('engine.js');
let sent: Promise<unknown> = Promise.resolve();
/**
 * Posts to Node's server after all earlier posts. Errors are ignored: a post fails only if Node has ended, and then the page is closed too.
 */
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

/** Passes messages of Node to the worker. Each HTTP response of Node's server is one message. */
async function receive(): Promise<never> {
  for (;;) link.deliver(new Uint8Array(await (await fetch('message')).arrayBuffer()));
}

Object.assign(globalThis, { webgrpo: { adapter } });
void receive();
