/** Judges what a kernel did on ten shapes. */

/** Added to the mean of the squares, as the shipped model does. */
export const EPS = 1e-6;
/** Returns RMSNorm of rows in 64 bits. */
export function exactNorm(x: ArrayLike<number>, weight: ArrayLike<number>): Float64Array {
  const C = weight.length;
  const squares = Float64Array.from({ length: x.length / C }, (_, row) => {
    let sum = 0;
    for (let c = 0; c < C; c++) sum += x[row * C + c] ** 2;
    return sum;
  });
  return Float64Array.from(
    x,
    (value, i) => value * (1 / Math.sqrt(squares[Math.floor(i / C)] / C + EPS)) * weight[i % C],
  );
}

/** Largest error of a value, relative to the value if that is above 1. */
export const TOLERANCE = 1e-5;

/** Rows, columns, and size of the numbers. The rows of the last three are near 0, where eps decides. */
export const SHAPES: readonly { N: number; C: number; scale: number }[] = [
  ...[
    [1, 1],
    [5, 3],
    [2, 63],
    [2, 64],
    [3, 65],
    [4, 96],
    [1, 1536],
  ].map(([N, C]) => ({ N, C, scale: 3 })),
  { N: 2, C: 64, scale: 1e-3 },
  { N: 3, C: 96, scale: 1e-3 },
  { N: 1, C: 96, scale: 0 },
];

/** Results of a kernel on all shapes. */
export interface KernelFacts {
  /** True if threads share memory and never wait for each other. */
  sharesWithoutBarrier: boolean;
  /** In the order of SHAPES: the value with the largest error, and whether all wrong values are too large. */
  shapes: readonly { error: number; at: number; got: number; want: number; isTooLarge: boolean }[];
}

export const withoutComments = (code: string): string => code.replace(/\/\/.*|\/\*[^]*?\*\//g, '');

export const MISTAKES = {
  barrier:
    'No thread waits for the others: it adds sums that are not written yet. On some GPUs that happens to be right, and on others not. Put workgroupBarrier() between writing and reading.',
  eps: 'Right for ordinary rows, wrong for rows near 0. Without eps the root of 0 is 0, and 1 / 0 is not a number.',
  part: 'Your sum of squares is too small, so the result is too large: a part of the row is missing. All columns count, and the sums of all 64 threads.',
};

const shown = (value: number) =>
  Number.isNaN(value) ? 'not written, or not a number' : `${Number(value.toPrecision(6))}`;

/** Returns the sentence for a mistake; undefined if the kernel is right on all shapes. */
export function judge({ sharesWithoutBarrier, shapes }: KernelFacts): string | undefined {
  if (sharesWithoutBarrier) return MISTAKES.barrier;
  const bad = shapes.flatMap((shape, i) => (shape.error <= TOLERANCE ? [] : [{ ...shape, ...SHAPES[i] }]));
  if (bad.length === 0) return undefined;
  const ordinary = bad.filter(({ scale }) => scale === 3);
  if (ordinary.length === 0) return MISTAKES.eps;
  if (ordinary.every(({ isTooLarge }) => isTooLarge)) return MISTAKES.part;
  const [{ N, C, at, got, want }] = ordinary;
  return `With ${N} x ${C} numbers, row ${Math.floor(at / C)}, column ${at % C} is ${shown(got)}, and should be ${shown(want)}.`;
}
