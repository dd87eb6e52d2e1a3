/**
 * A model by its address, opened in a worker of a page: downloaded into OPFS, then read from there piece by piece, so that
 * host memory never holds more of it than a few MiB.
 */

import type { DownloadProgress } from '../model/checkpoint/download.ts';
import { fetchModel, type HubOptions } from '../model/checkpoint/hub.ts';
import { openCheckpoint, type OpenCheckpoint, type WeightSource } from '../model/checkpoint/open.ts';
import { elementCount, parameterSpecs } from '../model/params.ts';
import { opfsStore } from '../model/checkpoint/opfs.ts';
import { isKeptGguf, keptGguf } from './keptGguf.ts';

/** Progress is told so often at most; the end of a file always. */
const TELL_EVERY_MS = 100;

/** Throws InputError as `fetchModel` and `openCheckpoint` do. The weights' own progress is of "weights to the GPU". */
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
