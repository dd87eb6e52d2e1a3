/** Stores the reports of complete runs. */

import { mkdirSync, writeFileSync } from 'node:fs';
import { fileName, type Report } from './report.ts';

const FOLDER = 'bench/results';

/** Writes bench/results/<adapter>.json; returns the path. */
export function keep(report: Report): string {
  const file = `${FOLDER}/${fileName(report)}`;
  mkdirSync(FOLDER, { recursive: true });
  writeFileSync(file, `${JSON.stringify(report, null, 2)}\n`);
  return file;
}
