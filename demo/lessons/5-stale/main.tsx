/** Entry point of lesson 5. */

import './lesson.css';
import { Predict } from '../kit/predict.tsx';
import { openLesson } from '../kit/shell.tsx';
import { CapFigure, DelayFigure } from './delay.tsx';
import { EXERCISES, HISTOGRAMS } from './exercises.ts';
import { RowsFigure, TimesFigure } from './samples.tsx';
import { agesStill, NUMBERS } from './stills.ts';

const TRUTH = `At the end the reward was ${NUMBERS['end-0']} without delay, ${NUMBERS['end-1']} with 1, ${NUMBERS['end-4']} with 4 and ${NUMBERS['end-16']} with 16, from ${NUMBERS['start']}: means of three seeds.`;

const Delays = () => (
  <Predict
    id="5.2"
    onLocked={() => {}}
    question="Each batch is trained on so many steps after it was drawn. From which delay on does the reward of 60 steps no longer rise?"
    options={[
      { value: '1', name: 'from 1: old tries are wrong tries', means: TRUTH },
      { value: '4', name: 'from 4', means: TRUTH },
      { value: '16', name: 'only from 16', means: TRUTH },
      { value: 'none', name: 'it rises with each of them', means: TRUTH },
    ]}
  />
);

/** The three histograms of exercise 5.1, without names. */
const Ages = () => (
  <>
    {HISTOGRAMS.map((pipeline, k) => (
      <div key={pipeline.name}>
        <p>
          <b>{'ABC'[k]}</b>
        </p>
        <div class="svg" dangerouslySetInnerHTML={{ __html: agesStill(pipeline, `Histogram ${'ABC'[k]}`) }} />
      </div>
    ))}
  </>
);

openLesson({
  figures: {
    '5.1': () => <RowsFigure />,
    '5.2': () => <DelayFigure />,
    '5.3': () => <CapFigure />,
    '5.4': () => <TimesFigure />,
  },
  predictions: { '5.2': () => <Delays /> },
  exercises: EXERCISES,
  pictures: { '5.1': () => <Ages /> },
});
