/**
 * Opens a model by its address in a worker of the page. Downloads it into OPFS, then reads it from there piece by piece, so that at most a
 * few MiB of it are in host memory.
 */

import { isKeptGguf } from '../model/checkpoint/address.ts';
import type { DownloadProgress } from '../model/checkpoint/download.ts';
import { fetchModel, type HubOptions } from '../model/checkpoint/hub.ts';
import { openCheckpoint, type OpenCheckpoint, type WeightSource } from '../model/checkpoint/open.ts';
import { elementCount, parameterSpecs } from '../model/params.ts';
import { opfsStore } from '../model/checkpoint/opfs.ts';
import { keptGguf } from './keptGguf.ts';

/** Minimum milliseconds between two progress reports. The end of a file is always reported. */
const TELL_EVERY_MS = 100;

/**
 * Opens a model. Throws InputError like `fetchModel` and `openCheckpoint`. Progress of reading the weights is reported as "weights to the
 * GPU".
 */
export async function openInOpfs(
  address: string,
  { endpoint, onProgress }: Pick<HubOptions, 'endpoint' | 'onProgress'>,
): Promise<OpenCheckpoint> {
  const tell = onProgress && seldom(onProgress);
  const files = isKeptGguf(address)
    ? await keptGguf(address)
    : await fetchModel(address, await opfsStore('models'), { endpoint, onProgress: tell });
  const model = await openCheckpoint(files);
  return tell ? { ...model, weights: telling(model, tell) } : model;
}

type Tell = (progress: DownloadProgress) => void;

function seldom(tell: Tell): Tell {
  let last: DownloadProgress | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const flush = () => {
    clearTimeout(timer);
    timer = undefined;
    if (last) tell(last);
  };
  return (progress) => {
    last = progress;
    if (progress.received === progress.total) flush();
    else timer ??= setTimeout(flush, TELL_EVERY_MS);
  };
}

function telling({ config, weights }: OpenCheckpoint, tell: Tell): WeightSource {
  const total = 4 * parameterSpecs(config).reduce((sum, { shape }) => sum + elementCount(shape), 0);
  return {
    async *pieces() {
      let received = 0;
      for await (const piece of weights.pieces()) {
        yield piece;
        tell({ file: 'weights to the GPU', received: (received += piece.data.byteLength), total });
      }
    },
  };
}
