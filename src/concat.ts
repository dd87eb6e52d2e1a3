/** Concatenates typed arrays into a new array. */
export function concat<A extends { set(part: ArrayLike<number>, at: number): void }>(
  Numbers: new (length: number) => A,
  parts: readonly ArrayLike<number>[],
): A {
  const all = new Numbers(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
