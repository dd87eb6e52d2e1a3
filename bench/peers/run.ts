/** Runs one peer, in the peer's own process or page. */

import { Gpu } from '../../src/gpu/device.ts';
import { type CachedModel, decodeGreedy } from './decoding.ts';
import { type Ort, ortDecoder } from './ort.ts';
import type { DecodePeerResult, PeerName, TrainPeerResult } from './types.ts';

/** Services that a peer gets from its host: Node, or a page. */
export interface PeerHost {
  /** Loads ONNX Runtime Web, whose files are in different places in Node and in a page. */
  loadOrt(provider: 'wasm' | 'webgpu'): Promise<Ort>;
  /** Prints a line of progress. */
  say(line: string): void;
}

export async function runPeer(
  name: PeerName,
  quick: boolean,
  host: PeerHost,
): Promise<TrainPeerResult | DecodePeerResult> {
  switch (name) {
    case 'tfjs':
      return withAdapter(async (gpu) => (await import('./tfjs.ts')).runTfjsTrain(gpu, quick));
    case 'tfjsDecode':
      return withAdapter(async (gpu) => decodeAll(await (await import('./tfjs.ts')).tfjsDecoder(gpu), quick, host));
    case 'jaxjs':
      return withAdapter(async () => (await import('./jaxjs.ts')).runJaxjs(quick));
    case 'ortWebgpu':
      return withAdapter(async () => decodeAll(await ortDecoder(await host.loadOrt('webgpu'), 'webgpu'), quick, host));
    case 'ortWasm':
      return decodeAll(await ortDecoder(await host.loadOrt('wasm'), 'wasm'), quick, host);
  }
}

async function withAdapter<T extends object>(work: (gpu: Gpu) => Promise<T>): Promise<T & { adapter: string }> {
  const gpu = await Gpu.create();
  return { ...(await work(gpu)), adapter: adapterId(gpu) };
}

/** Returns an id of the adapter that is the same in Node and in a browser, although the two describe an adapter differently. */
export const adapterId = ({ adapter: { vendor, architecture } }: Gpu): string => `${vendor} ${architecture}`;

/** Milliseconds after which a peer skips the remaining batch sizes. */
const BUDGET_MS = 60_000;

/** Decodes with each batch size, for fewer tokens than webgrpo's benchmark. Peers may be slow, and a shorter cache only helps them. */
async function decodeAll(
  open: (sequences: number) => CachedModel,
  quick: boolean,
  { say }: PeerHost,
): Promise<DecodePeerResult> {
  say('loaded');
  const decode: DecodePeerResult['decode'] = {};
  const started = performance.now();
  for (const n of decodeCounts(quick)) {
    if (performance.now() - started > BUDGET_MS) break;
    decode[n] = await decodeGreedy(() => open(n), n, quick ? 4 : 16, quick ? 1 : 2);
    say(`${n} sequences: ${decode[n].tokensPerSecond.toFixed(0)} tokens a second`);
  }
  return { decode };
}

/** Returns the batch sizes (sequences decoded together) in the order of measurement. A slow peer skips the last ones. */
export const decodeCounts = (quick: boolean): number[] => (quick ? [1, 64] : [64, 1, 8, 256]);
