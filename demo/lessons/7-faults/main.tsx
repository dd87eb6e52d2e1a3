/** Entry point of lesson 7. */

import { openLesson } from '../kit/shell.tsx';
import { idOf, RunFigure } from './figure.tsx';
import { RepairFigure } from './repair.tsx';
import { RECORDED } from './runs.ts';

openLesson({
  figures: { '7.1': () => <RunFigure />, '7.2': () => <RepairFigure /> },
  predictions: {},
  exercises: [],
  solvable: RECORDED.runs.map((_, run) => idOf(run)),
});
