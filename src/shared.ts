/**
 * Entries that users register by name, such as losses, shared by all copies of the library in this process. There can be two copies: the
 * installed command line contains one, and a module loaded with `--import` imports another.
 */

/** Remedy in errors for an unknown name that a user's module can register. */
export const REGISTER_IT = 'If your own module registers it, load the module first, by the --import FILE of the run.';

type Add = (name: string, entry: unknown) => void;

/** Entries of one kind (such as losses), and one function per copy of the library that adds an entry to the copy's own table. */
interface Kind {
  entries: Map<string, unknown>;
  copies: Add[];
}

/** State that all copies of the library in this process share. */
interface Shared {
  kinds: Map<string, Kind>;
  /** Number of registrations. */
  count: number;
}

const KEY = Symbol.for('webgrpo.registered');
const shared = ((globalThis as { [KEY]?: Shared })[KEY] ??= { kinds: new Map(), count: 0 });

/**
 * Registers this copy's table for a kind of entries. Returns a function that adds an entry to the tables of all copies.
 * @param add adds an entry to this copy's table; called immediately with the entries that other copies registered
 */
export function shareEntries<T>(kind: string, add: (name: string, entry: T) => void): typeof add {
  const { entries, copies } = shared.kinds.get(kind) ?? { entries: new Map<string, unknown>(), copies: [] };
  shared.kinds.set(kind, { entries, copies });
  copies.push(add as Add);
  for (const [name, entry] of entries) add(name, entry as T);
  return (name, entry) => {
    shared.count++;
    entries.set(name, entry);
    for (const addTo of copies) addTo(name, entry);
  };
}

/** Returns how often an entry was registered in this process. */
export const sharedCount = (): number => shared.count;
