/** Metrics as a table: one row per step, one column per metric. */

import type { Metrics } from '../grpo/metrics.ts';

/** Returns every metric name in the order of first occurrence. A metric that first occurs in a later step is thus further to the right. */
export function csvColumns(history: readonly Metrics[]): string[] {
  return [...new Set(history.flatMap((line) => Object.keys(line)))];
}

/** Returns the full table as CSV, header first. */
export const csvText = (columns: readonly string[], history: readonly Metrics[]): string =>
  [columns.map(cell).join(','), ...history.map((line) => csvRow(columns, line))].map((row) => `${row}\n`).join('');

/**
 * Returns a step's metrics as a row of the table. A cell is empty if the step lacks the metric, and NaN if its value is not finite (null in
 * metrics.jsonl).
 */
export const csvRow = (columns: readonly string[], line: Metrics): string =>
  columns.map((name) => (!(name in line) ? '' : Number.isFinite(line[name]) ? String(line[name]) : 'NaN')).join(',');

const cell = (name: string): string => (/[",\n]/.test(name) ? `"${name.replaceAll('"', '""')}"` : name);
