/** Entry point of lesson 3. */

import { short } from '../../../src/ui/format.ts';
import { Predict, PredictCurve } from '../kit/predict.tsx';
import { curvesPlot } from '../kit/plot.ts';
import { openLesson } from '../kit/shell.tsx';
import { CurvesFigure } from './curves.tsx';
import { EXERCISES, MATCH_SEED, MATCHED } from './exercises.ts';
import { LoopFigure, PREDICTED_STEPS, RateFigure, TimeFigure } from './loop.tsx';
import { end, endOf, type Measure, MEASURES, pointsOf, runsOf, smoothed, start, STEPS } from './stills.ts';

const Learning = () => (
  <PredictCurve
    id="3.1"
    onLocked={() => {}}
    steps={PREDICTED_STEPS}
    of={MEASURES.reward.name}
    question="The reward of a perfect model is 1. Draw the reward of the 60 steps: with the pointer, or with the sliders."
    means={(values) =>
      `You said ${short(values[0])} at the start and ${short(values.at(-1)!)} at the end. The recorded run had ${short(start)} and ${short(end)}, means of five steps. It is dashed in figure 3.1.`
    }
  />
);

const rates = `At the end the reward is ${short(endOf(1e-4))} with 0.0001, ${short(endOf(1e-3))} with 0.001 and ${short(endOf(1e-2))} with 0.01, means of three seeds.`;

const FASTER = {
  scale: `${rates} Learning does not scale with the rate: a step that is too large leaves the region that its gradient describes.`,
  slow: `${rates} Ten times is not faster: the first update breaks the model, and it does not come back.`,
  breaks: `${rates} The first update with 0.01 breaks the model, and it does not come back.`,
  same: `${rates} The rate decides more here than anything else in the file.`,
};

const Faster = () => (
  <Predict
    id="3.2"
    onLocked={() => {}}
    question="The run used the learning rate 0.001. What do a tenth and ten times of it do in 60 steps?"
    options={[
      { value: 'scale', name: 'a tenth learns a tenth, ten times learns ten times as fast', means: FASTER.scale },
      { value: 'slow', name: 'a tenth learns more slowly, ten times learns faster', means: FASTER.slow },
      { value: 'breaks', name: 'a tenth learns more slowly, ten times breaks the model', means: FASTER.breaks },
      { value: 'same', name: 'all three end at the same reward', means: FASTER.same },
    ]}
  />
);

/** Charts of the three runs of exercise 3.2, without their learning rates. */
const Runs = () => (
  <>
    {(['reward', 'entropy', 'gradNorm'] as Measure[]).map((measure) => {
      const { name, most } = MEASURES[measure];
      const curves = MATCHED.map((lr, k) => ({
        name: 'ABC'[k],
        className: `curve-${'abc'[k]}`,
        points: pointsOf(smoothed(runsOf(lr).find(({ seed }) => seed === MATCH_SEED)![measure])),
      }));
      const ends = curves.map((curve) => `${curve.name} ends at ${short(curve.points.at(-1)![1])}`).join(', ');
      const html = curvesPlot(curves, { steps: STEPS, y: [0, most], of: name, height: 170 }, `${name}: ${ends}.`);
      return <div key={measure} class="svg" dangerouslySetInnerHTML={{ __html: html }} />;
    })}
  </>
);

openLesson({
  figures: {
    '3.1': () => <LoopFigure />,
    '3.2': () => <RateFigure />,
    '3.3': () => <CurvesFigure />,
    '3.4': () => <TimeFigure />,
  },
  predictions: { '3.1': () => <Learning />, '3.2': () => <Faster /> },
  exercises: EXERCISES,
  pictures: { '3.2': () => <Runs /> },
});
