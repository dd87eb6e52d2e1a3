/**
 * Tests the choice of kernels: it changes no bit of the results, the table is stored under the adapter's identity, and tables that do not
 * fit are refused. matmul.test.ts runs them, because it has compiled the tiles.
 */
import { expect, test } from 'vitest';
import type { MatmulVariant } from '../../kernels/tiles.ts';
import { Gpu } from '../../src/gpu/device.ts';
import { isMeasured, matmulTable, type MatmulTable, runsOn, useMatmulTable } from '../../src/gpu/ops/matmul.ts';
import type { FileStore } from '../../src/model/checkpoint/store.ts';
import { applyTuning, identityOf, parseTable, tuningFile } from '../../src/model/kernels/tuning.ts';
import { InputError } from '../../src/errors.ts';
import { packGroups } from '../../src/model/packing.ts';
import { WgslEngine } from '../../src/model/wgslEngine.ts';
import { tinyConfig, tinyModel } from './tinyModel.ts';
import { expectSame } from './check.ts';
import { isFull } from './full.ts';
import { testGpu, withGpu } from './gpu.ts';

const ADAMW = { lr: 1e-2, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0.01, gradClip: 1 };

/** Returns log-probs before and after two training steps, and the weights. */
async function twoSteps(gpu: Gpu, table: MatmulTable) {
  useMatmulTable(gpu, table);
  const ids = (n: number, seed: number) =>
    Uint32Array.from({ length: n }, (_, i) => (i * 17 + seed * 29) % tinyConfig.vocabSize);
  const samples = [9, 40, 21].map((n, s) => ({ tokens: ids(n, s + 2), mask: new Uint8Array(n).fill(1) }));
  const { batch } = packGroups([{ prompt: ids(6, 1), samples }], 128)[0];
  const engine = new WgslEngine(gpu, tinyModel(gpu), 128);
  const weights = new Float32Array(batch.targets.length).fill(1 / batch.targets.length);
  const seen: Float32Array[] = [];
  for (let step = 0; step < 2; step++) {
    seen.push((await engine.forwardBackward(batch, { kind: 'nll', weights }, { temperature: 1 })).logProbs);
    await engine.optimizerStep(ADAMW);
  }
  for (const { data } of (await engine.exportWeights()).values()) seen.push(data);
  useMatmulTable(gpu, undefined);
  return seen;
}

/** Creates a file store in memory. `before` is the content of files that were not written in it. */
function memoryStore(before: Uint8Array | undefined): FileStore & { files: Map<string, Uint8Array> } {
  const files = new Map<string, Uint8Array>();
  const bytesOf = (path: string) => files.get(path) ?? before;
  return {
    files,
    size: async (path) => bytesOf(path)?.length,
    read: async (path, begin, end) => bytesOf(path)!.slice(begin, end),
    writer: async (path) => ({ write: async (bytes) => void files.set(path, bytes), close: async () => {} }),
  };
}

const CUT_SHORT = new TextEncoder().encode('{"identity": "goog');

export function testKernelTuning(): void {
  test('training under pinned tables gives the same bits', () =>
    withGpu(async (gpu) => {
      const lanes = gpu.adapter.subgroupMaxSize === 8 ? 'subgroup8' : 'subgroup4';
      const tiles = ['plain_4x1', `${lanes}_16x4`, 'workgroup_2x2', 'plain_8x8'] as MatmulVariant[];
      const [small, mixed, inMemory, plain] = tiles.filter((tile) => runsOn(gpu, tile));
      const builtIn = await twoSteps(gpu, matmulTable(gpu));
      const mixture: MatmulTable = [
        [4, small],
        [30, mixed],
        [Infinity, inMemory],
      ];
      for (const table of [mixture, ...(isFull ? [[[Infinity, plain ?? small]] satisfies MatmulTable] : [])]) {
        const other = await twoSteps(gpu, table);
        expect(other.length).toBe(builtIn.length);
        other.forEach((values, i) => expectSame(values, builtIn[i]));
      }
      expect(builtIn[0]).not.toEqual(builtIn[1]);
    }));

  test.each([['cut short', CUT_SHORT] as const, ...(isFull ? [['not there', undefined] as const] : [])])(
    'an adapter that was not measured is timed where its file is %s, once, and gets tiles that run here for any number of rows',
    async (_, file) => {
      const gpu = await Gpu.create();
      const store = memoryStore(file);
      const tune = (tuning: 'auto' | 'off') => applyTuning(gpu, tuning, async () => store);
      if (isMeasured(gpu)) expect(await tune('auto')).toBe('built in');
      gpu.adapter.subgroupMaxSize = 16; // like an adapter that was not measured; the code that runs is correct on either
      expect(await tune('off')).toBe('built in');
      expect([...store.files]).toEqual([]);
      expect(await tune('auto')).toBe('timed');
      const timed = matmulTable(gpu);
      useMatmulTable(gpu, undefined);
      expect(await tune('auto')).toBe('kept');
      expect(matmulTable(gpu)).toEqual(timed);

      for (const [, tile] of timed) expect(runsOn(gpu, tile)).toBe(true);
      expect(timed.at(-1)![0]).toBe(Infinity);
      const [bytes] = store.files.values();
      const kept = JSON.parse(new TextDecoder().decode(bytes)) as ReturnType<typeof tuningFile>;
      expect(parseTable(gpu, kept, 'it')).toEqual(timed);
      const { times } = kept.measured!;
      expect(times.map(({ rows }) => rows)).toEqual([1, 4, 8, 16, 32, 64, 128, 256, 512, 1024]);
      for (const { us } of times) expect(Math.min(...Object.values(us))).toBeGreaterThan(0);

      const refuse = () => Promise.reject(new InputError('The cache folder cannot be used.'));
      expect(await applyTuning(gpu, 'auto', async () => ({ ...store, size: refuse, writer: refuse }))).toBe('timed');

      const before = identityOf(gpu);
      gpu.adapter.description += ', a newer driver';
      expect(identityOf(gpu)).not.toBe(before);
      gpu.destroy();
    },
  );

  test('a table that does not fit is refused with one error message', async () => {
    const gpu = await testGpu();
    const of = (file: unknown) => () => parseTable(gpu, file, 'tiles.json');
    expect(of({})).toThrow('tiles.json has no list "matmul". Write a file with "webgrpo tune --out FILE".');
    expect(of({ matmul: [{ upToRows: 8, tile: 'plain_4x4' }] })).toThrow(
      'tiles.json: upToRows of row 1 is 8. It must rise from row to row, and only the last has none.',
    );
    for (const matmul of [[null], [7], [null, { tile: 'plain_8x8' }]]) expect(of({ matmul })).toThrow(InputError);
    const falling = [{ upToRows: 8, tile: 'plain_4x4' }, { upToRows: 4, tile: 'plain_4x4' }, { tile: 'plain_8x8' }];
    expect(of({ matmul: falling })).toThrow('upToRows of row 2 is 4');
    expect(of({ matmul: [{ tile: 'fast' }] })).toThrow(
      /^tiles.json has the tile "fast"; allowed on this adapter: .*plain_8x8/,
    );
    await expect(applyTuning(gpu, 'tiles.json')).rejects.toThrow(
      'trainer.kernelTuning is "tiles.json"; allowed in a page: auto or off. The command line also takes a file.',
    );
  });
}
