/** Formats tables for a terminal. */

/** Aligns the columns of a table: the first column to the left, all others to the right. */
export function aligned(rows: readonly string[][]): string {
  const widths = rows[0].map((_, c) => Math.max(...rows.map((cells) => cells[c].length)));
  return rows
    .map(
      (cells) =>
        `  ${cells.map((cell, c) => (c === 0 ? cell.padEnd(widths[c]) : cell.padStart(widths[c] + 2))).join('')}`,
    )
    .join('\n');
}
