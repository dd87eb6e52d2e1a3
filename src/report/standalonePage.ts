/** Reports as self-contained HTML files. Each file is the built page with the data of one report. */

import type { ComparisonReport } from './comparison.ts';
import page from './page/index.html?inline-page';
import type { ProfileReport } from './profile/profileReport.ts';
import type { ReplayReport } from './replay/replayReport.ts';
import type { RunReport } from './runReport.ts';

/** The data of any report that the page can show. */
export type Report = RunReport | ProfileReport | ComparisonReport | ReplayReport;

/** Script element in page/index.html whose content is the report's data. */
const [START, END] = ['<script id="report" type="application/json">', '</script>'];

/**
 * Returns the complete HTML file. The data is in the file, because a page opened from disk must not fetch the JSON file next to it. That
 * JSON file is for other programs.
 */
export function standalonePage(report: Report): string {
  const [before, after] = page.split(START + END);
  if (after === undefined) throw new Error(`page/index.html has no ${START}${END}.`);
  return [before, START, scriptSafeJson(report), END, after].join('');
}

/** Returns a value as JSON in which no text can close the script element. */
const scriptSafeJson = (value: unknown) => JSON.stringify(value).replaceAll('<', '\\u003c');
