import type { Metrics } from '../grpo/metrics.ts';

/** Returns lines of metrics.jsonl with these values added to the line of their step. If that step has no line, inserts one. */
export function amended(lines: readonly Metrics[], metrics: Metrics): Metrics[] {
  const step = metrics['training/global_step'];
  const at = lines.findIndex((line) => line['training/global_step'] >= step);
  if (at < 0) return [...lines, metrics];
  if (lines[at]['training/global_step'] === step) return lines.with(at, { ...lines[at], ...metrics });
  return lines.toSpliced(at, 0, metrics);
}
