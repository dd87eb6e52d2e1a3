/** Helpers of the kernel printers: WGSL has no unroll and no loops over names, so they write everything out. */

export const range = (n: number): number[] => [...Array(n).keys()];

/** One line of n statements. */
export const each = (n: number, statement: (i: number) => string): string => range(n).map(statement).join(' ');

type Line = string | false;

/** Lines, lists of them, or nothing, as text `n` columns in. */
export const indent = (n: number, lines: readonly (Line | readonly Line[])[]): string =>
  lines
    .flat()
    .filter((line) => line)
    .map((line) => ' '.repeat(n) + line)
    .join('\n');

/** Inner product of two heads held as n vec4s: four partial sums, added at the end by `FOLD`. */
export const dot = (x: string, y: string, n: number): string =>
  `fold(${range(n)
    .map((j) => `${x}_${j} * ${y}_${j}`)
    .join(' + ')})`;
export const FOLD = 'fn fold(x: vec4f) -> f32 { return (x.x + x.y) + (x.z + x.w); }';
