/**
 * Prints the campaign's rows as Markdown tables in docs/lab/reliability.md. Each part's last complete run is stored in
 * campaign/results.json.
 */

import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import type { CampaignRow } from './part.ts';

const RESULTS = 'campaign/results.json';
const PAGE = 'docs/lab/reliability.md';
const [START, END] = ['<!-- campaign: npm run campaign -->', '<!-- end of campaign -->'];

interface KeptPart {
  commit: string;
  seconds: number;
  rows: Omit<CampaignRow, 'failures'>[];
}
type Kept = Record<string, KeptPart>;

export function table(rows: readonly Omit<CampaignRow, 'failures'>[]): string {
  const cells = rows.map(({ what, tried, wrong, note = '' }) => `| ${what} | ${tried} | ${wrong} | ${note} |`);
  return ['| what | tried | lost or wrong | |', '|---|---|---|---|', ...cells].join('\n');
}

/** Replaces the stored result of a part, and the tables of all parts in the page; `order` is the order in the page. */
export function keep(part: string, seconds: number, rows: readonly CampaignRow[], order: readonly string[]): void {
  const kept = JSON.parse(readFileSync(RESULTS, 'utf8')) as Kept;
  kept[part] = { commit: commit(), seconds: Math.round(seconds), rows: rows.map(({ failures: _, ...row }) => row) };
  writeFileSync(RESULTS, `${JSON.stringify(kept, null, 2)}\n`);
  const tables = order.flatMap((name) => {
    const found = kept[name];
    return found ? [`Part **${name}** (${found.commit}, took ${found.seconds} s)`, table(found.rows)] : [];
  });
  const [before, rest] = readFileSync(PAGE, 'utf8').split(START);
  const after = rest.split(END)[1];
  writeFileSync(PAGE, `${before}${START}\n\n${tables.join('\n\n')}\n\n${END}${after}`);
}

/** Returns the commit of the working tree, with "+" after it if there are uncommitted changes other than this page and its data. */
function commit(): string {
  const git = (...args: string[]) => execFileSync('git', args, { encoding: 'utf8' }).trim();
  const changed = git('status', '--porcelain', '--', '.', `:!${RESULTS}`, `:!${PAGE}`) !== '';
  return `commit ${git('rev-parse', '--short', 'HEAD')}${changed ? '+' : ''}`;
}
