/** The page of every report: draws the one that stands in it as JSON. */

import type { Report } from '../standalonePage.ts';
import { comparisonView } from './comparisonView.ts';
import { byId } from './dom.ts';
import { profileView } from './profileView.ts';
import { runView } from './runView.ts';

const report = JSON.parse(byId('report').textContent) as Report;

switch (report.kind) {
  case 'run':
    document.title = report.title;
    runView(report, document.body);
    break;
  case 'comparison':
    document.title = report.title;
    comparisonView(report, document.body);
    break;
  case 'profile':
    document.title = `Profile of ${report.title}`;
    profileView(report, document.body);
}
