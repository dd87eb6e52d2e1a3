/**
 * Times the tiles of the matrix product that an adapter can run, by number of rows, and builds a table of the fastest ones. All tiles sum
 * in the same order, so the table changes the time of a product but no bit of its result.
 */

import { MATMUL_TILES, type MatmulVariant, namesOf } from '../../kernels/tiles.ts';
import type { Gpu, View } from './device.ts';
import { matmulKernel, matmulNn, type MatmulTable, runsOn, TIMED_COLUMNS } from './ops/matmul.ts';

/** Numbers of rows to time: decode steps with few and with many sequences, prompts, and training batches. */
const ROWS = [1, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
/** A product is repeated until it takes this long, because a browser rounds timestamps to 0.1 ms. */
const LEAST_S = 0.002;
const MOST_TIMES = 64;
/** Tiles slower than the best by this factor are timed only once. */
const HOPELESS = 1.5;
/** Minimum speed-up of a tile over the tile for more rows, because each tile costs a compilation, and times are noisy. */
const GAIN = 1.05;

interface TunedRows {
  rows: number;
  /** Microseconds of one product with `rows` rows, by the tile that computes it. */
  us: Partial<Record<MatmulVariant, number>>;
}

export interface Tuning {
  table: MatmulTable;
  times: TunedRows[];
  /** Number of columns (n) and depth (k) of the timed products. */
  n: number;
  k: number;
  /** Duration of the timing in seconds. Compilations run at the same time and are not included. */
  seconds: number;
}

/**
 * Times every tile once, except tiles in workgroup memory on a software adapter, which compile for seconds and are slow there. Times the
 * fast ones again until `budgetS` seconds are over, so that a short disturbance does not decide.
 */
export async function tuneMatmul(gpu: Gpu, budgetS = 1): Promise<Tuning> {
  const { isSoftware } = gpu.adapter;
  const tiles = namesOf(MATMUL_TILES).filter(
    (tile) => runsOn(gpu, tile) && !(isSoftware && 'depth' in MATMUL_TILES[tile]),
  );
  await Promise.all(tiles.map((tile) => gpu.prepare(matmulKernel(tile))));
  const [n, k] = isSoftware ? [384, 128] : [TIMED_COLUMNS, 1024];
  const started = performance.now();
  const spent = () => (performance.now() - started) / 1000;
  const stopwatch = await startWatch(gpu);
  const bench = productBench(gpu, n, k);
  const times = ROWS.map((rows): TunedRows => ({ rows, us: {} }));
  try {
    for (let round = 0; round === 0 || spent() < budgetS; round++)
      for (const { rows, us } of times) await timeRound(tiles, us, (tile) => stopwatch.secondsOf(bench.of(rows, tile)));
  } finally {
    stopwatch.stop();
    bench.free();
  }
  return { table: fastest(times), times, n, k, seconds: spent() };
}

async function timeRound(
  tiles: MatmulVariant[],
  us: TunedRows['us'],
  seconds: (tile: MatmulVariant) => Promise<number>,
) {
  const best = Math.min(...Object.values(us));
  for (const tile of tiles) {
    const before = us[tile] ?? 0;
    if (before > HOPELESS * best) continue;
    us[tile] = Math.min(before || Infinity, (await seconds(tile)) * 1e6);
  }
}

/** Builds the table from the largest number of rows down. Fewer rows get another tile only if that one is faster. */
export function fastest(times: readonly TunedRows[]): MatmulTable {
  const table: [number, MatmulVariant][] = [];
  for (const { rows, us } of [...times].reverse()) {
    const best = (Object.keys(us) as MatmulVariant[]).reduce((a, b) => (us[b]! < us[a]! ? b : a));
    const larger = table[0]?.[1];
    if (larger !== undefined && us[larger]! <= GAIN * us[best]!) continue;
    table.unshift([table.length === 0 ? Infinity : rows, best]);
  }
  return table;
}

function productBench(gpu: Gpu, N: number, K: number) {
  const most = ROWS[ROWS.length - 1];
  const noise = (n: number) => Float32Array.from({ length: n }, (_, i) => ((i * 7919) % 4093) / 2046.5 - 1);
  const views = { x: gpu.buffer('tune.x', noise(most * K)), b: gpu.buffer('tune.b', noise(K * N)) };
  const y = gpu.buffer('tune.y', most * N * 4);
  return {
    of: (M: number, variant: MatmulVariant) => () => matmulNn(gpu, { ...views, y, M, N, K, variant }),
    free: () => [views.x, views.b, y].forEach((view) => gpu.free(view)),
  };
}

/**
 * Returns a function that times work: by the GPU's clock if there are timestamps, otherwise by the host's clock minus the time of a
 * read-back.
 */
async function startWatch(gpu: Gpu) {
  const probe = gpu.buffer('tune.probe', 4);
  const timed = gpu.startTimer();
  const wall = await wallClock(gpu, probe);
  const run = async (record: () => void, times: number): Promise<number> => {
    gpu.timeAs('tune');
    for (let i = 0; i < times; i++) record();
    gpu.timeAs(undefined);
    if (!timed) return wall();
    return ((await gpu.readTimed(probe)).times?.['tune'] ?? 0) / 1000;
  };
  const secondsOf = async (record: () => void): Promise<number> => {
    await run(record, 1); // caches are cold, and some drivers compile at first use
    for (let times = 1; ; times = Math.min(4 * times, MOST_TIMES)) {
      const seconds = await run(record, times);
      if (seconds >= LEAST_S || times === MOST_TIMES) return seconds / times;
    }
  };
  const stop = () => {
    gpu.stopTimer();
    gpu.free(probe);
  };
  return { secondsOf, stop };
}

async function wallClock(gpu: Gpu, probe: View) {
  const read = async () => {
    const started = performance.now();
    await gpu.read(probe);
    return (performance.now() - started) / 1000;
  };
  let least = Infinity;
  for (let i = 0; i < 3; i++) least = Math.min(least, await read());
  return async () => Math.max((await read()) - least, 1e-7);
}
