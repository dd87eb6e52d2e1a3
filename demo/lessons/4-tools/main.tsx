/** Entry point of lesson 4. */

import './lesson.css';
import { move } from '../kit/address.ts';
import { Predict } from '../kit/predict.tsx';
import { openLesson } from '../kit/shell.tsx';
import { CheatFigure } from './cheat.tsx';
import { EXERCISES } from './exercises.ts';
import { MaskFigure, TurnsFigure } from './masks.tsx';
import { NUMBERS } from './stills.ts';
import { ToolFigure } from './tool.tsx';

const TRUTH = `It went from ${NUMBERS['right-first']} to ${NUMBERS['right-last']} in ${NUMBERS['step-last']} steps.`;

const Form = () => (
  <Predict
    id="4.3"
    onLocked={() => move({ step: undefined })}
    question="Any try that ends in an answer line is paid, right or wrong, and a short try is paid more. What happens to the share of right answers?"
    options={[
      {
        value: 'up',
        name: 'it rises: the model practises to answer',
        means: `${TRUTH} It practised to answer, and not to be right.`,
      },
      {
        value: 'same',
        name: 'it stays: right answers are not paid',
        means: `${TRUTH} What is paid changes what is not paid.`,
      },
      {
        value: 'turn',
        name: 'it rises, and then it falls',
        means: `${TRUTH} With other rewards that happens; here a guess is paid from the start.`,
      },
      { value: 'down', name: 'it falls from the start', means: `${TRUTH} A guess is shorter than a calculation.` },
    ]}
  />
);

openLesson({
  figures: {
    '4.1': () => <MaskFigure />,
    '4.2': () => <ToolFigure />,
    '4.3': () => <CheatFigure />,
    '4.4': () => <TurnsFigure />,
  },
  predictions: { '4.3': () => <Form /> },
  exercises: EXERCISES,
});
