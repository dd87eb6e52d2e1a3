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
    provide: (part) => void (given = part),
    get() {
      if (given) return given;
      throw new Error(`${what}: no extension provides it. Import engineParts.ts and trainerParts.ts.`);
    },
  };
}
