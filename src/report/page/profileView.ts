/** profile.html: how a run spent its time. */

import type { EventKind } from '../../rollout/agent/events.ts';
import type { ProfileReport } from '../profile/profileReport.ts';
import { KINDS } from '../profile/profileStats.ts';
import { el, scrolling, table } from '../../ui/dom.ts';
import { colourOf, completionCurves, histogramBars, seconds, shareBars, timelines } from './profileDrawings.ts';
import { plural } from '../../ui/format.ts';

/** Adds the content of profile.html to the page. */
export function profileView(report: ProfileReport, parent: HTMLElement): void {
  const { title, steps, samples, advice, stops, slowest } = report;
  const sections: [heading: string, ...content: Node[]][] = [
    ['What to set', list(advice.length > 0 ? advice : ['Nothing stands out.'])],
    ['Samples done over the time of a step', scrolling('Samples done', completionCurves(report.completions))],
    [
      'Share of the samples\u2019 time by event',
      key(),
      scrolling('Shares', shareBars(report.shares)),
      el('p', '', samplingNote(report.samplingTimed)),
    ],
    ['The step by phase', scrolling('Phases', phaseTable(report))],
    ['Tail: the last fifth of the samples', scrolling('Tail', tailTable(report))],
    ['Response length (tokens)', scrolling('Lengths', histogramBars('Samples by response length', report.tokens))],
    ['Turns per sample', scrolling('Turns', histogramBars('Samples by turns', report.turns))],
    ['Stop reasons', list(Object.entries(stops).map(([stop, n]) => `${stop}: ${n}`))],
    [`The ${slowest.length} slowest samples`, key(), scrolling('Slowest samples', timelines(slowest))],
  ];
  parent.append(
    el('h1', '', `Profile of ${title}`),
    el('p', '', `${plural(steps, 'step')}, ${plural(samples, 'sample')}.`),
    ...sections.flatMap(([heading, ...content]) => [el('h2', '', heading), ...content]),
  );
}

const list = (lines: string[]) => el('ul', '', ...lines.map((line) => el('li', '', line)));

/** Creates the legend of the colours of event kinds. */
function key(): HTMLElement {
  const entry = (kind: EventKind) => {
    const colour = el('i');
    colour.style.background = colourOf(kind);
    return el('span', '', colour, kind);
  };
  return el('p', 'key', ...KINDS.filter((kind) => kind !== 'generate').map(entry));
}

/** Explains how the time for sampling tokens is measured: separately (`timed`) or as part of decode. */
const samplingNote = (timed: boolean): string =>
  timed
    ? 'Drawing tokens (sample) and running the model (decode) alternate; the GPU\u2019s clock tells them apart.'
    : 'Drawing tokens (sample) is part of decode: trainer.profileGpu tells them apart where the adapter has timestamps.';

/** Creates a table with the seconds of each phase per step. The phase 'sync' is shown as 'weight sync'. */
function phaseTable({ phases }: ProfileReport): HTMLElement {
  const names = [...new Set(phases.flatMap(({ spent }) => Object.keys(spent)))];
  const head = ['step', ...names.map((name) => (name === 'sync' ? 'weight sync' : name))];
  const rows = phases.map(({ step, spent }) => [String(step), ...names.map((name) => seconds(spent[name] ?? 0))]);
  return table([head, ...rows], 'numbers');
}

function tailTable({ tails }: ProfileReport): HTMLElement {
  const head = ['step', 'generation', 'after 80% were done', 'tokens, tail / others', 'turns', 'tail ended by'];
  const rows = tails.map(({ step, share, tailMs, generationMs, tokens, turns, stops }) => [
    String(step),
    seconds(generationMs),
    `${seconds(tailMs)} (${(100 * share).toFixed(0)}%)`,
    `${tokens.tail.toFixed(0)} / ${tokens.others.toFixed(0)}`,
    `${turns.tail.toFixed(1)} / ${turns.others.toFixed(1)}`,
    Object.entries(stops)
      .map(([stop, n]) => `${stop} ${n}`)
      .join(', '),
  ]);
  return table([head, ...rows], 'numbers');
}
