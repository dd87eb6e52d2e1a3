/** The page's address: its allowed parameters, and the settings of the form in it. */

import { closest } from 'fastest-levenshtein';
import type { TrainConfig } from '../../../src/grpo/config/types.ts';
import { isShipped } from '../../engine/configs.ts';

/** Parameters in the order in which a link has them. docs/inside/page.md explains each. */
const PARAMETERS = [
  ...['config', 'algorithm', 'loss', 'lr', 'steps', 'n', 'seed', 'task', 'set'],
  ...['hub', 'autostart', 'resume', 'room', 'lesson'],
];

/** Parameters of the visit, not of the run. Shared links do not contain them. */
const OF_THE_VISIT = ['autostart', 'resume', 'room', 'lesson'];

/** Names of lessons over the page. */
const LESSONS = ['cheat'];

/** Returns one sentence per unknown address parameter; undefined if all are known. */
export function unknownParameters(address: URLSearchParams): string | undefined {
  const lesson = address.get('lesson');
  if (lesson !== null && !LESSONS.includes(lesson))
    return `Unknown lesson "${lesson.slice(0, 40)}". Known: ${LESSONS.join(', ')}.`;
  const unknown = [...new Set(address.keys())].filter((name) => !PARAMETERS.includes(name));
  if (unknown.length === 0) return undefined;
  const sentences = unknown.map(
    (name) => `Unknown parameter "${name.slice(0, 40)}". Did you mean "${closest(name.slice(0, 40), PARAMETERS)}"?`,
  );
  return `${sentences.join(' ')} Known parameters: ${PARAMETERS.join(', ')}.`;
}

/** Returns the address with `settings` in place of its current settings. The order of parameters is fixed. */
function withSettings(current: URL, settings: URLSearchParams): URL {
  const url = new URL(current);
  const kept = new URLSearchParams(current.search);
  const ofVisit = ['hub', ...OF_THE_VISIT].flatMap((name) => kept.getAll(name).map((value) => [name, value]));
  url.search = new URLSearchParams([...settings, ...ofVisit]).toString();
  url.hash = '';
  return url;
}

/** Writes the settings to the address bar, without a new entry in the history. */
export function writeAddress(settings: URLSearchParams): void {
  const url = withSettings(new URL(location.href), settings);
  if (url.href !== location.href) history.replaceState(history.state, '', url);
}

/** Returns the address to share: settings, and the result as `encodeResult` writes it. @param hub server of the run's model */
export function linkOf(settings: URLSearchParams, hub: string | undefined, result?: string): string {
  const url = withSettings(new URL(location.href), settings);
  if (hub === undefined) url.searchParams.delete('hub');
  else url.searchParams.set('hub', hub);
  for (const name of OF_THE_VISIT) url.searchParams.delete(name);
  if (result !== undefined) url.hash = `r=${result}`;
  return url.href;
}

/** Returns the encoded result in an address; undefined if it has none. */
export const resultIn = (hash: string): string | undefined => /^#r=(.*)$/s.exec(hash)?.[1];

/** Returns the hosts, other than the page's own, from which a run would load files. A link alone must not start such a load. */
export function foreignHosts({ model, reward }: TrainConfig, hub = HUB): string[] {
  const hosts = [model.path, reward.judge.checkpoint, model.customChatTemplate].flatMap((path) => {
    if (path === undefined || isShipped(path) || path.startsWith('configs/')) return [];
    const address = URL.canParse(path) ? path : hub;
    return URL.canParse(address) ? new URL(address).host : address;
  });
  return [...new Set(hosts)].filter((host) => host !== location.host);
}

const HUB = 'https://huggingface.co';
