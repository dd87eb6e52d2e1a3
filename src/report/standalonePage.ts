/** Reports as self-contained HTML files: the built page with one report's data in it. */

import type { ComparisonReport } from './comparison.ts';
import page from './page/index.html?inline-page';
import type { ProfileReport } from './profile/profileReport.ts';
import type { ReplayReport } from './replay/replayReport.ts';
import type { RunReport } from './runReport.ts';

/** A report that the page can show. */
export type Report = RunReport | ProfileReport | ComparisonReport | ReplayReport;

/** Script element of page/index.html that holds the report. */
const [START, END] = ['<script id="report" type="application/json">', '</script>'];

/**
 * Returns the complete file. The data is embedded, because a page opened from disk must not fetch the JSON file next to it, which
 * is for programs.
 */
export function standalonePage(report: Report): string {
  const [before, after] = page.split(START + END);
  if (after === undefined) throw new Error(`page/index.html has no ${START}${END}.`);
  return [before, START, scriptSafeJson(report), END, after].join('');
}

/** Returns JSON that cannot close the script element around it. */
const scriptSafeJson = (value: unknown) => JSON.stringify(value).replaceAll('<', '\\u003c');
