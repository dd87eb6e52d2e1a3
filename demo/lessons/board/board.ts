/** Content of the class board: the curves of results from pasted links, their mean, and a band around it. */

import { type SharedResult, decodeResult } from '../../state/address/share.ts';
import { describe } from '../../../src/errors.ts';
import { short } from '../../../src/ui/format.ts';
import type { Curve } from '../kit/plot.ts';

/** Maximum number of results that one chart shows. */
export const MOST = 40;

export const METRICS = {
  'critic/score/mean': 'reward',
  'val-core/shared/acc/mean@1': 'pass@1, held-out problems',
  'response_length/mean': 'response length, in tokens',
  'actor/entropy': 'entropy',
} as const;

export type Metric = keyof typeof METRICS;

export interface Pasted {
  results: { name: string; history: SharedResult['history'] }[];
  /** Sentences about links that were skipped. */
  problems: string[];
}

/** Reads the links in a text. Text between them is ignored, and a link that was pasted twice counts once. */
export async function readLinks(text: string): Promise<Pasted> {
  const links = new Map([...text.matchAll(/(\S*?)#r=([\w-]+)/g)].map(([, address, packed]) => [packed, address]));
  const problems = links.size > MOST ? [`${links.size} links were pasted. The board shows the first ${MOST}.`] : [];
  const results: Pasted['results'] = [];
  for (const [packed, address] of [...links].slice(0, MOST)) {
    const name = nameOf(address, results.length + problems.length + 1);
    try {
      results.push({ name, history: (await decodeResult(packed)).history });
    } catch (error) {
      problems.push(`${name}: ${describe(error)}`);
    }
  }
  if (links.size === 0 && text.trim() !== '')
    problems.push(
      'No result was found in this text. A link to a result has "#r=" in it: "Share" on the page copies one.',
    );
  return { results, problems };
}

/** Names a result by the settings in its link, such as seed and algorithm. */
function nameOf(address: string, place: number): string {
  const query = new URLSearchParams(address.split('?')[1] ?? '');
  const told = ['seed', 'algorithm', 'lr', 'n'].flatMap((key) => (query.has(key) ? [`${key} ${query.get(key)}`] : []));
  return told.length > 0 ? told.join(', ').slice(0, 60) : `result ${place}`;
}

/** Returns the values of a result at steps 0 to `last`; null = not measured. */
export const curveOf = ({ history }: Pasted['results'][number], metric: Metric, last: number): Curve => {
  const at = new Map(history.map((line) => [line['training/global_step'], line[metric]]));
  return Array.from({ length: last + 1 }, (_, step) => at.get(step) ?? null);
};

export interface Band {
  mean: number | null;
  low: number | null;
  high: number | null;
}

/** Returns mean and mean plus or minus one standard deviation at each step, over the curves that have a value there. */
export function bandOf(curves: readonly Curve[]): Band[] {
  return Array.from({ length: Math.max(0, ...curves.map((curve) => curve.length)) }, (_, step) => {
    const values = curves.flatMap((curve) => curve[step] ?? []);
    if (values.length === 0) return { mean: null, low: null, high: null };
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    const spread = Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / Math.max(1, values.length - 1));
    return { mean, low: mean - spread, high: mean + spread };
  });
}

/** Returns a sentence with the range and the mean of the results' last values. */
export function inWords(curves: readonly Curve[], name: string): string {
  const last = curves.flatMap((curve) => curve.filter((value) => value !== null).at(-1) ?? []);
  if (last.length === 0) return 'Paste links to see their curves.';
  const mean = last.reduce((a, b) => a + b, 0) / last.length;
  return `${last.length} ${last.length === 1 ? 'result' : 'results'}: the last ${name} is from ${short(Math.min(...last))} to ${short(Math.max(...last))}, with a mean of ${short(mean)}.`;
}
