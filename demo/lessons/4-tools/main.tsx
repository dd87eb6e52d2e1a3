/** Entry point of lesson 4. */

import './lesson.css';
import { move } from '../kit/address.ts';
import { short } from '../../../src/ui/format.ts';
import { Predict, PredictCurve } from '../kit/predict.tsx';
import { openLesson } from '../kit/shell.tsx';
import { CheatFigure } from './cheat.tsx';
import { EXERCISES } from './exercises.ts';
import { MaskFigure, TurnsFigure } from './masks.tsx';
import { CALL_SHARES, CALL_STEPS, NUMBERS } from './stills.ts';
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
        means: `${TRUTH} The first steps were a little higher, which 64 tries a step cannot tell from chance.`,
      },
      { value: 'down', name: 'it falls from the start', means: `${TRUTH} A guess is shorter than a calculation.` },
    ]}
  />
);

const Calls = () => (
  <PredictCurve
    id="4.3 calls"
    onLocked={() => move({ pays: 'calls', step: undefined })}
    steps={CALL_STEPS}
    of="share of right answers"
    question="Every tool call earns a fifth, right answers earn nothing. Draw the share of held-out problems solved over 40 steps: with the pointer, or with the sliders."
    means={(values) =>
      `You drew ${values.map(short).join(', ')}. The run had ${CALL_SHARES.map(short).join(', ')}. Figure 4.3 shows both now.`
    }
  />
);

openLesson({
  figures: {
    '4.1': () => <MaskFigure />,
    '4.2': () => <ToolFigure />,
    '4.3': () => <CheatFigure />,
    '4.4': () => <TurnsFigure />,
  },
  predictions: { '4.3': () => <Form />, '4.3 calls': () => <Calls /> },
  exercises: EXERCISES,
});
