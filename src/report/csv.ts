/** Metrics as a table: a row a step, a column a metric. */

import type { Metrics } from '../grpo/metrics.ts';

/** Every name that occurs, in the order of its first occurrence: a metric that comes later is a column at the right end. */
export function csvColumns(history: readonly Metrics[]): string[] {
  return [...new Set(history.flatMap((line) => Object.keys(line)))];
}

export const csvText = (columns: readonly string[], history: readonly Metrics[]): string =>
  [columns.map(cell).join(','), ...history.map((line) => csvRow(columns, line))].map((row) => `${row}\n`).join('');

/** Empty where the step has no such metric, NaN where it has none that is finite (metrics.jsonl has null there). */
export const csvRow = (columns: readonly string[], line: Metrics): string =>
  columns.map((name) => (!(name in line) ? '' : Number.isFinite(line[name]) ? String(line[name]) : 'NaN')).join(',');

const cell = (name: string): string => (/[",\n]/.test(name) ? `"${name.replaceAll('"', '""')}"` : name);
