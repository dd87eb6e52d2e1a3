/** profile.html of a run: drawn here as SVG, so that the file needs neither a script nor a network. */

import type { EventKind } from '../rollout/agent/events.ts';
import type { SampleProfile, StepProfile } from './profileLog.ts';
import {
  advice,
  completions,
  countBy,
  endOf,
  KINDS,
  type ProfiledSettings,
  tailReport,
  timeline,
  timeShares,
} from './profileStats.ts';

const COLOURS: Record<EventKind, string> = {
  start: '#b9b9b2',
  queue: '#d8a84e',
  prefill: '#4b8bbf',
  decode: '#2563a8',
  sample: '#5d9ce0',
  generate: '#2563a8',
  parse: '#8a3fa0',
  tool: '#c2621b',
  reward: '#2a7d4f',
  wait: '#e4e4df',
};

const CSS = `
:root { color-scheme: light dark; --line: light-dark(#ddd, #444); }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
svg { width: 100%; height: auto; } text { font: 11px system-ui, sans-serif; fill: currentColor; }
table { border-collapse: collapse; } td, th { padding: .15rem .8rem .15rem 0; text-align: right; }
td:first-child, th:first-child { text-align: left; } .key span { display: inline-block; margin-right: 1rem; }
.key i { display: inline-block; width: .8em; height: .8em; margin-right: .3em; } .axis { stroke: var(--line); }
`;

const SLOWEST = 12;
const CURVES = 6;

export function profilePage(title: string, steps: readonly StepProfile[], settings: ProfiledSettings): string {
  const samples = steps.flatMap((step) => step.samples);
  const advised = advice(steps, settings);
  const sections = [
    ['What to set', list(advised.length > 0 ? advised : ['Nothing stands out.'])],
    ['Samples done over the time of a step', completionCurves(steps)],
    ['Share of the samples’ time by event', `${key()}${shareBars(steps)}${sampling(steps)}`],
    ['The step by phase', phaseTable(steps)],
    ['Tail: the last fifth of the samples', tailTable(steps)],
    ['Response length (tokens)', histogram(samples.map(({ tokens }) => tokens))],
    ['Turns a sample', histogram(samples.map(({ turns }) => turns))],
    [
      'Stop reasons',
      list(Object.entries(countBy(samples.map(({ stop }) => stop))).map(([stop, n]) => `${stop}: ${n}`)),
    ],
    [`The ${SLOWEST} slowest samples`, `${key()}${slowest(steps)}`],
  ];
  const body = sections.map(([heading, html]) => `<h2>${heading}</h2>\n${html}`).join('\n');
  const name = escape(title);
  return `<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Profile of ${name}</title><style>${CSS}</style></head>
<body><h1>Profile of ${name}</h1><p>${steps.length} steps, ${samples.length} samples.</p>\n${body}\n</body></html>\n`;
}

const ENTITIES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escape = (text: string) => text.replace(/[&<>"]/g, (character) => ENTITIES[character]);
const list = (lines: string[]) => `<ul>${lines.map((line) => `<li>${escape(line)}</li>`).join('')}</ul>`;
const seconds = (ms: number) => (ms > 0 && ms < 100 ? `${ms.toPrecision(2)} ms` : `${(ms / 1000).toPrecision(3)} s`);
const round = (x: number) => Math.round(x * 10) / 10;

function key(): string {
  const entry = (kind: EventKind) => `<span><i style="background:${COLOURS[kind]}"></i>${kind}</span>`;
  return `<p class="key">${KINDS.filter((kind) => kind !== 'generate')
    .map(entry)
    .join('')}</p>`;
}

/** Says where draws are counted when no event is about them. */
function sampling(steps: readonly StepProfile[]): string {
  const timed = steps.some(({ samples }) => samples.some(({ events }) => events.some(([kind]) => kind === 'sample')));
  return timed
    ? '<p>Drawing tokens (sample) and running the model (decode) alternate; the GPU’s clock tells them apart.</p>'
    : '<p>Drawing tokens (sample) is part of decode: trainer.profileGpu tells them apart where the adapter has timestamps.</p>';
}

/** A few steps, first and last among them, so that one sees how the shape changes. */
function chosen(steps: readonly StepProfile[]): StepProfile[] {
  const count = Math.min(CURVES, steps.length);
  const places = Array.from({ length: count }, (_, i) => Math.round((i * (steps.length - 1)) / Math.max(1, count - 1)));
  return places.map((place) => steps[place]);
}

function completionCurves(steps: readonly StepProfile[]): string {
  const picked = chosen(steps);
  const longest = Math.max(1, ...picked.flatMap((step) => completions(step)));
  const [W, H, left] = [1000, 260, 40];
  const x = (ms: number) => round(left + ((W - left - 20) * ms) / longest);
  const y = (share: number) => round(H - 30 - (H - 50) * share);
  const curve = (step: StepProfile, i: number) => {
    const times = completions(step);
    const points = times.map((ms, n) => `${x(ms)},${y(n / times.length)} ${x(ms)},${y((n + 1) / times.length)}`);
    const colour = `hsl(${215 - (175 * i) / Math.max(1, picked.length - 1)} 65% 45%)`;
    const label = `<text x="${left + 8 + i * 80}" y="14" style="fill:${colour}">step ${step.step}</text>`;
    return `<polyline fill="none" stroke="${colour}" stroke-width="1.5" points="${x(0)},${y(0)} ${points.join(' ')}"/>${label}`;
  };
  const guides = [0, 0.8, 1].map(
    (share) =>
      `<line class="axis" x1="${left}" x2="${W}" y1="${y(share)}" y2="${y(share)}"/><text x="0" y="${y(share) + 4}">${100 * share}%</text>`,
  );
  const ticks = [0, 0.5, 1].map(
    (part) => `<text x="${x(part * longest)}" y="${H - 8}" text-anchor="middle">${seconds(part * longest)}</text>`,
  );
  return svg(W, H, [...guides, ...ticks, ...picked.map(curve)].join(''));
}

function shareBars(steps: readonly StepProfile[]): string {
  const rows = [...chosen(steps).map((step) => ({ label: `step ${step.step}`, shares: timeShares([step]) }))];
  if (steps.length > 1) rows.push({ label: 'all', shares: timeShares(steps) });
  const bars = rows.map(({ label, shares }, r) => {
    let at = 70;
    const parts = KINDS.flatMap((kind) => {
      const width = 920 * (shares[kind] ?? 0);
      if (width === 0) return [];
      const title = `<title>${kind} ${(100 * shares[kind]!).toFixed(1)}%</title>`;
      const rect = `<rect x="${round(at)}" y="${r * 24}" width="${round(width)}" height="18" fill="${COLOURS[kind]}">${title}</rect>`;
      const wide = width > 44 && kind !== 'wait';
      const share = `<text x="${round(at + 6)}" y="${r * 24 + 13}" style="fill:#fff">${(100 * shares[kind]!).toFixed(0)}%</text>`;
      at += width;
      return [wide ? rect + share : rect];
    });
    return `<text x="0" y="${r * 24 + 13}">${label}</text>${parts.join('')}`;
  });
  return svg(1000, rows.length * 24, bars.join(''));
}

/** Seconds of each phase; 'sync' is told by its longer name. */
function phaseTable(steps: readonly StepProfile[]): string {
  const picked = chosen(steps);
  const names = [...new Set(picked.flatMap(({ phases }) => phases.map(([name]) => name)))];
  const spent = ({ phases }: StepProfile, name: string) =>
    phases.reduce((sum, [phase, start, end]) => sum + (phase === name ? end - start : 0), 0);
  const row = (cells: string[], tag: 'td' | 'th') =>
    `<tr>${cells.map((cell) => `<${tag}>${cell}</${tag}>`).join('')}</tr>`;
  const head = row(['', ...names.map((name) => escape(name === 'sync' ? 'weight sync' : name))], 'th');
  const rows = picked.map((step) =>
    row([`step ${step.step}`, ...names.map((name) => seconds(spent(step, name)))], 'td'),
  );
  return `<table>${head}${rows.join('')}</table>`;
}

function tailTable(steps: readonly StepProfile[]): string {
  const rows = chosen(steps).flatMap((step) => {
    const report = tailReport(step);
    if (!report) return [];
    const { share, tailMs, generationMs, tokens, turns, stops } = report;
    const ends = Object.entries(stops).map(([stop, n]) => `${escape(stop)} ${n}`);
    const cells = [
      `step ${step.step}`,
      seconds(generationMs),
      `${seconds(tailMs)} (${(100 * share).toFixed(0)}%)`,
      `${tokens.tail.toFixed(0)} / ${tokens.others.toFixed(0)}`,
      `${turns.tail.toFixed(1)} / ${turns.others.toFixed(1)}`,
      ends.join(', '),
    ];
    return [`<tr>${cells.map((cell) => `<td>${cell}</td>`).join('')}</tr>`];
  });
  const head = ['', 'generation', 'after 80% were done', 'tokens, tail / others', 'turns', 'tail ended by'];
  return `<table><tr>${head.map((h) => `<th>${h}</th>`).join('')}</tr>${rows.join('')}</table>`;
}

function histogram(values: readonly number[]): string {
  if (values.length === 0) return '<p>No samples.</p>';
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const width = Math.max(1, Math.ceil((high - low + 1) / 40));
  const bins = new Array<number>(Math.floor((high - low) / width) + 1).fill(0);
  for (const value of values) bins[Math.floor((value - low) / width)]++;
  const [most, step] = [Math.max(...bins), Math.min(60, 960 / bins.length)];
  const bars = bins.map((n, b) => {
    const height = round((110 * n) / most);
    const range = width === 1 ? `${low + b}` : `${low + b * width} to ${low + (b + 1) * width - 1}`;
    return `<rect x="${round(20 + b * step)}" y="${round(120 - height)}" width="${round(step - 1)}" height="${height}" fill="${COLOURS.decode}"><title>${range}: ${n}</title></rect>`;
  });
  // Every bin has its first value below it where there is room, and the highest says how many it holds.
  const every = Math.ceil(40 / step);
  const labels = bins.flatMap((_, b) =>
    b % every === 0 ? [`<text x="${round(20 + b * step)}" y="135">${low + b * width}</text>`] : [],
  );
  const peak = `<text x="${round(24 + (bins.indexOf(most) + 1) * step)}" y="22">${most}</text>`;
  return svg(1000, 140, `${bars.join('')}${peak}${labels.join('')}`);
}

/** The samples that took longest, each with its events on the time axis of its step. */
function slowest(steps: readonly StepProfile[]): string {
  const all = steps.flatMap((step) => step.samples.map((sample) => ({ step: step.step, sample, end: endOf(sample) })));
  const picked = all.sort((a, b) => b.end - a.end).slice(0, SLOWEST);
  const longest = Math.max(1, ...picked.map(({ end }) => end));
  const rows = picked.map(({ step, sample, end }, r) => {
    const label = `step ${step}, ${sample.id}: ${sample.tokens} tokens, ${sample.turns} turns, ${sample.stop}, ${seconds(end)}`;
    return `<text x="0" y="${r * 34 + 11}">${escape(label)}</text>${bar(sample, end, r * 34 + 15, 1000 / longest)}`;
  });
  return svg(1000, picked.length * 34, rows.join(''));
}

function bar(sample: SampleProfile, end: number, y: number, scale: number): string {
  const rects = timeline(sample, end).map(([kind, turn, from, to, gpuMs]) => {
    const gpu = gpuMs === undefined ? '' : `, GPU ${gpuMs} ms`;
    const title = `<title>${kind}, turn ${turn}: ${round(to - from)} ms${gpu}</title>`;
    const width = Math.max(0.5, (to - from) * scale);
    return `<rect x="${round(from * scale)}" y="${y}" width="${round(width)}" height="14" fill="${COLOURS[kind]}">${title}</rect>`;
  });
  return rects.join('');
}

const svg = (width: number, height: number, inner: string) =>
  `<svg viewBox="0 0 ${width} ${height}" role="img">${inner}</svg>`;
