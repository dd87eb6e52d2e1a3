/** Entry point of the appendix. */

import { move } from '../kit/address.ts';
import { Predict } from '../kit/predict.tsx';
import { openLesson } from '../kit/shell.tsx';
import { EXERCISES } from './exercises.ts';
import { GradientFigure, SentenceFigure, SumFigure } from './figures.tsx';
import { NUMBERS } from './stills.ts';

const TRUTH = `By 1 thread the sum is ${NUMBERS['sum-1']}, by 16 threads ${NUMBERS['sum-16']}.`;

const Order = () => (
  <Predict
    id="A.1"
    onLocked={() => move({ threads: undefined })}
    question={`One thread adds ${NUMBERS['tokens']} numbers. Then 16 threads add a part each, and their sums are added. Is it the same sum?`}
    options={[
      {
        value: 'same',
        name: 'yes: the order of a sum does not matter',
        means: `${TRUTH} On paper the order does not matter. A computer rounds after every addition, and then it does.`,
      },
      {
        value: 'last',
        name: 'nearly: the last digits differ',
        means: `${TRUTH} Every addition rounds, and another order rounds elsewhere.`,
      },
      {
        value: 'first',
        name: 'no: already the first digits differ',
        means: `${TRUTH} The error of one addition is small. Only after very many additions does it reach the first digits.`,
      },
      {
        value: 'chance',
        name: 'it is another sum every time',
        means: `${TRUTH} The order is fixed by the program, so the same number of threads gives the same bits again.`,
      },
    ]}
  />
);

openLesson({
  figures: { 'A.1': () => <SumFigure />, 'A.2': () => <SentenceFigure />, 'A.3': () => <GradientFigure /> },
  predictions: { 'A.1': () => <Order /> },
  exercises: EXERCISES,
});
