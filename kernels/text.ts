/** Helpers of the kernel printers: WGSL has no unroll and no loops over names, so they write everything out. */

/** Returns 0, 1, ... n - 1. */
export const range = (n: number): number[] => [...Array(n).keys()];

/** Returns n statements in one line. */
export const each = (n: number, statement: (i: number) => string): string => range(n).map(statement).join(' ');

type Line = string | false;

/** Returns lines as text, indented by `n` columns. A line can also be a list of lines, or missing. */
export const indent = (n: number, lines: readonly (Line | readonly Line[])[]): string =>
  lines
    .flat()
    .filter((line) => line)
    .map((line) => ' '.repeat(n) + line)
    .join('\n');

/** Returns the inner product of two heads of n vec4s: four partial sums, which `FOLD` adds at the end. */
export const dot = (x: string, y: string, n: number): string =>
  `fold(${range(n)
    .map((j) => `${x}_${j} * ${y}_${j}`)
    .join(' + ')})`;
export const FOLD = 'fn fold(x: vec4f) -> f32 { return (x.x + x.y) + (x.z + x.w); }';
