/** The page of every report: draws the report that is embedded in it as JSON. */

import type { Report } from '../standalonePage.ts';
import { comparisonView } from './comparisonView.ts';
import { byId, el } from '../../ui/dom.ts';
import { profileView } from './profileView.ts';
import { replayView } from './replayView.ts';
import { runView } from './runView.ts';

const report = JSON.parse(byId('report').textContent) as Report;
const main = el('main');
document.body.append(main);

switch (report.kind) {
  case 'run':
    document.title = report.title;
    runView(report, main);
    break;
  case 'comparison':
    document.title = report.title;
    comparisonView(report, main);
    break;
  case 'replay':
    document.title = `Replay of ${report.title}`;
    replayView(report, main);
    break;
  case 'profile':
    document.title = `Profile of ${report.title}`;
    profileView(report, main);
}
