/** What the printers of kernels share: WGSL has no unroll and no loops over names, so they write everything out. */

export const range = (n) => [...Array(n).keys()];
export const each = (n, f) => range(n).map(f).join(' ');
/** Lines, nested lists of them, or nothing, as text `n` columns in. */
export const indent = (n, lines) =>
  lines
    .flat()
    .filter((line) => line)
    .map((line) => ' '.repeat(n) + line)
    .join('\n');
/** Inner product of two heads held as n vec4s: four partial sums, added at the end by `FOLD`. */
export const dot = (x, y, n) =>
  `fold(${range(n)
    .map((j) => `${x}_${j} * ${y}_${j}`)
    .join(' + ')})`;
export const FOLD = 'fn fold(x: vec4f) -> f32 { return (x.x + x.y) + (x.z + x.w); }';
