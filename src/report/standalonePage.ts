/** Reports as HTML files that load nothing: the built page with one report's data in it. */

import type { ComparisonReport } from './comparison.ts';
import page from './page/index.html?inline-page';
import type { ProfileReport } from './profileReport.ts';
import type { ReplayReport } from './replay/replayReport.ts';
import type { RunReport } from './runReport.ts';

/** A report that the page can show. */
export type Report = RunReport | ProfileReport | ComparisonReport | ReplayReport;

/** Where page/index.html holds the report. */
const [START, END] = ['<script id="report" type="application/json">', '</script>'];

/**
 * The whole file. The data stands in the page itself, since a page opened from disk may not fetch the JSON file beside it:
 * that one is for programs.
 */
export function standalonePage(report: Report): string {
  const [before, after] = page.split(START + END);
  if (after === undefined) throw new Error(`page/index.html has no ${START}${END}.`);
  return [before, START, scriptSafeJson(report), END, after].join('');
}

/** JSON that cannot end the script element it stands in. */
const scriptSafeJson = (value: unknown) => JSON.stringify(value).replaceAll('<', '\\u003c');
