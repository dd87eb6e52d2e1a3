/** report.html of a run: curves and a few rollouts in one file that needs nothing else, not even a network. */

import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import type { Metrics } from '../grpo/metrics.ts';
import { readText, writeWhole } from '../cli/files.ts';
import { summarize, summaryTable } from '../cli/run/progress.ts';
import { rolloutsHtml } from './rollouts.ts';
import { REPORT_CSS, REPORT_SCRIPT } from './reportPage.ts';
import type { RunFolder } from '../cli/run/runFolder.ts';

/** One chart: a title, what its y axis is, and which metrics it draws by name or pattern. */
interface Chart {
  title: string;
  series: { label: string; metric: string | RegExp }[];
}

const CHARTS: Chart[] = [
  {
    title: 'held-out pass@1',
    series: [
      { label: 'sampled', metric: /^val-core\/.*\/acc\/mean@\d+$/ },
      { label: 'greedy', metric: /^val-core\/.*\/acc\/greedy$/ },
    ],
  },
  { title: 'reward', series: [{ label: 'mean', metric: 'critic/score/mean' }] },
  // On policy every ratio is 1 and advantages sum to about 0 in a group: users ask about this chart first.
  { title: 'policy loss (near 0 on policy)', series: [{ label: 'mean', metric: 'actor/pg_loss' }] },
  { title: 'entropy (nats)', series: [{ label: 'mean', metric: 'actor/entropy' }] },
  { title: 'gradient norm', series: [{ label: 'before clipping', metric: 'actor/grad_norm' }] },
  {
    title: 'KL (nats)',
    series: [
      { label: 'old to new policy', metric: 'actor/ppo_kl' },
      { label: 'to the reference', metric: 'actor/kl_loss' },
    ],
  },
  {
    title: 'clipped share of tokens',
    series: [
      { label: 'upper', metric: 'actor/pg_clipfrac' },
      { label: 'dual clip', metric: 'actor/pg_clipfrac_lower' },
    ],
  },
  {
    title: 'response length (tokens)',
    series: [
      { label: 'mean', metric: 'response_length/mean' },
      { label: 'max', metric: 'response_length/max' },
    ],
  },
  { title: 'tool calls a sample', series: [{ label: 'mean', metric: 'tool_call_counts/mean' }] },
  { title: 'loss (nats)', series: [{ label: 'mean a token', metric: 'train/loss' }] },
  {
    title: 'time by phase (s)',
    series: [
      { label: 'generate', metric: 'timing_s/gen' },
      { label: 'update', metric: 'timing_s/update_actor' },
      { label: 'log-probs', metric: 'timing_s/old_log_prob' },
      { label: 'evaluate', metric: 'timing_s/testing' },
      { label: 'sync', metric: 'timing_s/sync' },
    ],
  },
];

/** What one chart draws: values in the order of `steps`, null where a step has none. */
export interface ChartData {
  title: string;
  steps: number[];
  series: { label: string; values: (number | null)[] }[];
}

/** Writes report.html whole, and returns its path. */
export async function writeReport(folder: RunFolder): Promise<string> {
  const [metrics, rollouts] = [await folder.metrics(), await folder.rollouts()];
  const name = folder.path.split(/[\\/]/).at(-1) ?? '';
  const html = await standalonePage({
    title: name,
    css: REPORT_CSS,
    body: [
      `<h1>${escapeHtml(name)}</h1>`,
      `<pre>${escapeHtml(summaryTable(summarize({ history: metrics })))}</pre>`,
      '<main id="charts"></main>',
      `<h2>Rollouts</h2>${rolloutsHtml(rollouts)}`,
      `<details><summary>config.yaml</summary><pre>${escapeHtml(await readText(folder.file('config.yaml')))}</pre></details>`,
    ],
    data: chartData(metrics),
    script: REPORT_SCRIPT,
  });
  const path = folder.file('report.html');
  await writeWhole(path, html);
  return path;
}

export interface PageParts {
  title: string;
  css: string;
  /** HTML, escaped where it has to be. */
  body: string[];
  /** What `script` finds as JSON in the element #data. */
  data: unknown;
  script: string;
}

/** One HTML file with uPlot in it, which loads nothing. */
export async function standalonePage({ title, css, body, data, script }: PageParts): Promise<string> {
  const require = createRequire(import.meta.url);
  const [uplot, uplotCss] = await Promise.all([
    readFile(require.resolve('uplot/dist/uPlot.iife.min.js'), 'utf8'),
    readFile(require.resolve('uplot/dist/uPlot.min.css'), 'utf8'),
  ]);
  return [
    '<!doctype html>',
    '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
    `<title>${escapeHtml(title)}</title><style>${uplotCss}\n${css}</style></head><body>`,
    ...body,
    `<script id="data" type="application/json">${scriptSafeJson(data)}</script>`,
    `<script>${uplot}</script><script>${script}</script>`,
    '</body></html>',
  ].join('\n');
}

/** Charts that have anything to draw; series without a value are left out. */
export function chartData(metrics: readonly Metrics[]): ChartData[] {
  return CHARTS.flatMap(({ title, series }) => {
    const drawn = series
      .map(({ label, metric }) => ({ label, values: metrics.map((line) => valueOf(line, metric)) }))
      .filter(({ values }) => values.some((value) => value !== null));
    if (drawn.length === 0) return [];
    const used = metrics.map((_, i) => drawn.some(({ values }) => values[i] !== null));
    const keep = <T>(values: readonly T[]) => values.filter((_, i) => used[i]);
    const steps = keep(metrics.map((line) => line['training/global_step']));
    return [{ title, steps, series: drawn.map(({ label, values }) => ({ label, values: keep(values) })) }];
  });
}

/** By name, or of the first name that matches; null where the line has none. */
export function valueOf(line: Metrics, metric: string | RegExp): number | null {
  const key = typeof metric === 'string' ? metric : Object.keys(line).find((name) => metric.test(name));
  const value = key === undefined ? undefined : line[key];
  return value === undefined || !Number.isFinite(value) ? null : value;
}

export function escapeHtml(text: string): string {
  const names: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
  return text.replace(/[&<>"]/g, (character) => names[character]);
}

/** JSON that cannot end the script element it stands in. */
const scriptSafeJson = (value: unknown) => JSON.stringify(value).replaceAll('<', '\\u003c');
