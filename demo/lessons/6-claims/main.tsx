/** Entry point of lesson 6. */

import './lesson.css';
import { move } from '../kit/address.ts';
import { Predict } from '../kit/predict.tsx';
import { openLesson } from '../kit/shell.tsx';
import { BestFigure, SeedsFigure } from './claims.tsx';
import { EXERCISES } from './exercises.ts';
import { LayoutsFigure, PassFigure, RatesFigure } from './rates.tsx';
import { NUMBERS } from './stills.ts';

const TRUTH = `With three seeds a side no test can give a p below ${NUMBERS['p-three']}, so the table cannot tell which is best. Figure 6.5 shows all runs.`;

const Best = () => (
  <Predict
    id="6.5"
    onLocked={() => move({ seeds: undefined })}
    question="Which of the six is the best algorithm?"
    options={[
      {
        value: 'dapo',
        name: 'dapo: it has the highest mean',
        means: `It has, and one of its runs solved all 256. ${TRUTH}`,
      },
      {
        value: 'some',
        name: 'dapo or gspo, but surely not sapo',
        means: `Two runs of sapo solved more than the worst run of dapo. ${TRUTH}`,
      },
      { value: 'none', name: 'these numbers cannot tell', means: `You looked for what is missing. ${TRUTH}` },
      {
        value: 'same',
        name: 'all six are equally good',
        means: `That is a claim as well, and it was not shown either. ${TRUTH}`,
      },
    ]}
  />
);

openLesson({
  figures: {
    '6.1': () => <RatesFigure />,
    '6.2': () => <LayoutsFigure />,
    '6.3': () => <PassFigure />,
    '6.4': () => <BestFigure />,
    '6.5': () => <SeedsFigure />,
  },
  predictions: { '6.5': () => <Best /> },
  exercises: EXERCISES,
});
