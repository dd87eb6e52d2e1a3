/**
 * Entries that users register by name, such as losses, for all copies of the library in this process. The installed command
 * line contains its own copy, while a module of `--import` imports another.
 */

type Add = (name: string, entry: unknown) => void;

/** Entries of one kind, and the functions by which each copy adds an entry to its own table. */
interface Kind {
  entries: Map<string, unknown>;
  copies: Add[];
}

/** State that all copies of the library share. */
interface Shared {
  kinds: Map<string, Kind>;
  /** Number of registrations. */
  count: number;
}

const KEY = Symbol.for('webgrpo.registered');
const shared = ((globalThis as { [KEY]?: Shared })[KEY] ??= { kinds: new Map(), count: 0 });

/**
 * Returns a function that adds an entry to the tables of all copies.
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

/** Returns the number of registrations in this process. */
export const sharedCount = (): number => shared.count;
