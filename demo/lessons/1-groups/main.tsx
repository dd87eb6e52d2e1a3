/** Entry point of lesson 1. */

import { move } from '../kit/address.ts';
import { Predict } from '../kit/predict.tsx';
import { openLesson } from '../kit/shell.tsx';
import { ScaleFigure, SilenceFigure } from './curves.tsx';
import { EXERCISES } from './exercises.ts';
import { GroupFigure } from './group.tsx';
import { NUMBERS } from './stills.ts';

const pushes = `The right try of B has advantage ${NUMBERS['push-b']}, a right try of A ${NUMBERS['push-a']}`;

const Rarer = () => (
  <Predict
    id="1.1"
    onLocked={() => move({ problem: 1 })}
    question="How much harder is the one right try of group B pushed than a right try of group A?"
    options={[
      {
        value: 'same',
        name: 'as hard: right is right',
        means: `${pushes}. Both earned 1, but a try is pushed by how far it is from its own group, and B's mean is lower.`,
      },
      {
        value: 'times',
        name: `${NUMBERS['times-harder']} times as hard`,
        means: `${pushes}: ${NUMBERS['times-harder']} times as hard.`,
      },
      {
        value: 'eight',
        name: '8 times as hard',
        means: `${pushes}. A rare success counts more, but the advantage is divided by the spread of the group, so it does not count 8 times. The formula is below.`,
      },
      {
        value: 'depends',
        name: 'it depends on how large a reward is',
        means: `${pushes}. With a reward of 10 for a right try it would be the same: the advantage is divided by the spread of the group, which is then 10 times as large. The formula is below.`,
      },
    ]}
  />
);

openLesson({
  figures: { '1.1': () => <GroupFigure />, '1.2': () => <SilenceFigure />, '1.3': () => <ScaleFigure /> },
  predictions: { '1.1': () => <Rarer /> },
  exercises: EXERCISES,
});
