/**
 * Entries that users register by name, such as losses, for all copies of the library in this process. The installed command
 * line contains its own copy, while a module of `--import` imports another. Also parts of the core that extensions provide.
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

/** A part of the core that an extension provides, so that the core imports no extension. */
export interface ExtensionPoint<T> {
  /** Provides the part. */
  provide(part: T): void;
  /** Returns the part. Throws if it was not provided. */
  get(): T;
}

/**
 * Creates a place for one part. Programs fill them: `src/modelParts.ts` is imported to open models, `src/engineParts.ts` to create engines,
 * and `src/trainerParts.ts` to train.
 * @param what subject of the error if a program has not
 */
export function extensionPoint<T>(what: string): ExtensionPoint<T> {
  let given: T | undefined;
  return {
    provide(part) {
      given = part;
    },
    get() {
      if (given !== undefined) return given;
      throw new Error(`${what}: no extension provides it. Import src/engineParts.ts and src/trainerParts.ts first.`);
    },
  };
}
