/** Entry point of lesson 2. */

import './lesson.css';
import { move } from '../kit/address.ts';
import { Predict } from '../kit/predict.tsx';
import { openLesson } from '../kit/shell.tsx';
import { RatioFigure } from './curves.tsx';
import { EXERCISES } from './exercises.ts';
import { NUMBERS } from './stills.ts';
import { TokensFigure } from './tokens.tsx';
import { WeightsFigure } from './weights.tsx';

const TRUTH = 'On none. Before the first update every ratio is 1, and there all losses pull with the advantage.';

const Fresh = () => (
  <Predict
    id="2.2"
    onLocked={() => move({ updates: undefined })}
    question="The tries were just sampled, and no update was made. On how many tokens do PPO's clip, CISPO and SAPO pull differently?"
    options={[
      {
        value: 'none',
        name: 'on none',
        means: `${TRUTH} What still differs is how much a whole try weighs: ${NUMBERS['right-token']} or ${NUMBERS['right-seq']} of the pull is on right tries.`,
      },
      {
        value: 'unlikely',
        name: 'on the unlikely ones',
        means: `${TRUTH} The probability itself is in none of these losses, only its change.`,
      },
      {
        value: 'fifth',
        name: 'on about a fifth',
        means: `${TRUTH} A clip of 0.2 says how far a ratio can go before a token is let go. It is not a share of tokens.`,
      },
      {
        value: 'all',
        name: 'on all',
        means: `${TRUTH} The colours agree; only the weight of a whole try differs between the columns.`,
      },
    ]}
  />
);

openLesson({
  figures: { '2.1': () => <RatioFigure />, '2.2': () => <TokensFigure />, '2.3': () => <WeightsFigure /> },
  predictions: { '2.2': () => <Fresh /> },
  exercises: EXERCISES,
});
