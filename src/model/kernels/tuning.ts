/**
 * Chooses the kernel variants for a device: the built-in ones, those of a given file, or the fastest ones, which are
 * timed on the adapter at first use and stored.
 */

import { MATMUL_TILES, type MatmulVariant, namesOf } from '../../../kernels/tiles.ts';
import type { Gpu } from '../../gpu/device.ts';
import { isMeasured, matmulKernel, type MatmulTable, runsOn, useMatmulTable } from '../../gpu/ops/matmul.ts';
import { type Tuning, tuneMatmul } from '../../gpu/tune.ts';
import { InputError } from '../../errors.ts';
import { type FileStore, writeFile } from '../checkpoint/store.ts';

/** A row of a tuning file's table: the tile for products of up to `upToRows` rows. The last row has no upper bound. */
interface TableRow {
  upToRows?: number;
  tile: string;
}

/** File that `webgrpo tune` writes. Only its key `matmul` is read, and `identity` in a file that a run stored. */
export interface TuningFile {
  /** Identity of the setup that was measured: adapter, driver and the kernels' WGSL. */
  identity?: string;
  matmul: TableRow[];
  /** Measurements on which the table is based. */
  measured?: Pick<Tuning, 'times' | 'n' | 'k' | 'seconds'>;
}

/**
 * auto = the built-in table if it was measured for this adapter, otherwise a stored one, otherwise one that is timed
 * now; off = the built-in table; otherwise a table in the form of a tuning file.
 */
export type KernelTuning = string | TuningFile;

/** Origin of the table that a device uses. */
export type TableSource = 'built in' | 'pinned' | 'kept' | 'timed';

/**
 * Applies the requested tuning to the device. Throws InputError for a table that does not fit the adapter.
 * @param tables opens the store of measured tables; without a store, the adapter is timed in each run
 */
export async function applyTuning(
  gpu: Gpu,
  tuning: KernelTuning,
  tables?: () => Promise<FileStore | undefined>,
): Promise<TableSource> {
  if (typeof tuning !== 'string') {
    useMatmulTable(gpu, parseTable(gpu, tuning, 'trainer.kernelTuning'));
    return 'pinned';
  }
  if (tuning !== 'auto' && tuning !== 'off')
    throw new InputError(
      `trainer.kernelTuning is "${tuning}"; allowed in a page: auto or off. The command line also takes a file.`,
    );
  if (tuning === 'off' || isMeasured(gpu)) return 'built in';
  const store = await tables?.();
  const kept = store && (await keptTable(gpu, store));
  useMatmulTable(gpu, kept ?? (await timeTable(gpu, store)));
  return kept ? 'kept' : 'timed';
}

async function timeTable(gpu: Gpu, store: FileStore | undefined): Promise<MatmulTable> {
  const tuning = await tuneMatmul(gpu);
  // A table that cannot be stored is used by this run alone.
  if (store) await keepTuning(gpu, tuning, store).catch(() => undefined);
  return tuning.table;
}

/** Stores the measured table of an adapter. */
export async function keepTuning(gpu: Gpu, tuning: Tuning, store: FileStore): Promise<void> {
  await writeFile(store, fileOf(gpu), `${JSON.stringify(tuningFile(gpu, tuning), null, 2)}\n`);
}

/** Returns the tuning file with a measured table. */
export function tuningFile(gpu: Gpu, { table, ...measured }: Tuning): TuningFile {
  const matmul = table.map(([rows, tile]): TableRow => (rows === Infinity ? { tile } : { upToRows: rows, tile }));
  return { identity: identityOf(gpu), matmul, measured };
}

/**
 * Returns the stored table. Undefined if it is missing, unreadable, or was measured with another adapter, driver or
 * version of the kernels; the adapter is then timed again.
 */
async function keptTable(gpu: Gpu, store: FileStore): Promise<MatmulTable | undefined> {
  const path = fileOf(gpu);
  try {
    const bytes = await store.size(path);
    if (!bytes) return undefined;
    const file = JSON.parse(new TextDecoder().decode(await store.read(path, 0, bytes))) as TuningFile;
    return file.identity === identityOf(gpu) ? parseTable(gpu, file, path) : undefined;
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof InputError) return undefined;
    throw error;
  }
}

/** Parses a table. Throws an InputError that says what `source` contains, what is allowed, and what to do. */
export function parseTable(gpu: Gpu, file: unknown, source: string): MatmulTable {
  const rows = (file as Partial<TuningFile> | null)?.matmul;
  if (!Array.isArray(rows) || rows.length === 0)
    throw new InputError(`${source} has no list "matmul". Write a file with "webgrpo tune --out FILE".`);
  const table = rows.map((entry: Partial<TableRow> | null, i): [number, MatmulVariant] => {
    const row = entry ?? {};
    const last = i === rows.length - 1;
    const upTo = last ? (row.upToRows ?? Infinity) : row.upToRows;
    if (
      typeof upTo !== 'number' ||
      (last && upTo !== Infinity) ||
      !(upTo > ((rows[i - 1] as Partial<TableRow> | null | undefined)?.upToRows ?? 0))
    )
      throw new InputError(
        `${source}: upToRows of row ${i + 1} is ${row.upToRows ?? 'absent'}. It must rise from row to row, and only the last has none.`,
      );
    return [upTo, tileOf(gpu, row.tile, source)];
  });
  return table;
}

function tileOf(gpu: Gpu, tile: string | undefined, source: string): MatmulVariant {
  const here = namesOf(MATMUL_TILES).filter((name) => runsOn(gpu, name));
  const found = here.find((name) => name === tile);
  if (found) return found;
  throw new InputError(`${source} has the tile "${tile}"; allowed on this adapter: ${here.join(', ')}.`);
}

const fileOf = (gpu: Gpu): string => `kernels-${hash(identityOf(gpu))}.json`;

/**
 * Returns the identity of a setup: adapter, driver (its version is in the adapter's description or the browser's name),
 * and the kernels' WGSL.
 */
export function identityOf({ adapter }: Gpu): string {
  const { vendor, architecture, description, subgroupSize, subgroupMaxSize, features } = adapter;
  const code = hash(
    namesOf(MATMUL_TILES)
      .map((tile) => matmulKernel(tile).code)
      .join(),
  );
  const program = globalThis.navigator.userAgent ?? 'Node'; // in Dawn `navigator` has no userAgent
  const subgroups = `subgroups of ${subgroupSize} to ${subgroupMaxSize}`;
  return [vendor, architecture, description, subgroups, features.toSorted().join(' '), program, `kernels ${code}`].join(
    '; ',
  );
}

/** FNV-1a, 32 bits. */
function hash(text: string): string {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  return (h >>> 0).toString(16).padStart(8, '0');
}
