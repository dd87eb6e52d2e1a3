/**
 * Helpers of the code that prints kernels. WGSL cannot unroll loops or loop over variable names, so the helpers write every repetition out.
 */

/** Returns 0, 1, ... n - 1. */
export const range = (n: number): number[] => [...Array(n).keys()];

/** Returns on one line the statements that `statement` gives for 0 to n - 1. */
export const each = (n: number, statement: (i: number) => string): string => range(n).map(statement).join(' ');

type Line = string | false;

/** Joins lines to a text, each indented by `n` columns. An item can also be a list of lines, or false, which is skipped. */
export const indent = (n: number, lines: readonly (Line | readonly Line[])[]): string =>
  lines
    .flat()
    .filter((line) => line)
    .map((line) => ' '.repeat(n) + line)
    .join('\n');

/** Returns the WGSL of the inner product of two heads of n vec4s each. It has four partial sums, which `FOLD` adds at the end. */
export const dot = (x: string, y: string, n: number): string =>
  `fold(${range(n)
    .map((j) => `${x}_${j} * ${y}_${j}`)
    .join(' + ')})`;
export const FOLD = 'fn fold(x: vec4f) -> f32 { return (x.x + x.y) + (x.z + x.w); }';
