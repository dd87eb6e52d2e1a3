/** Figure 3.1, the loop as text that runs, figure 3.2, its learning rate, and figure 3.4, its time. */

import { signal, useSignal } from '@preact/signals';
import { short } from '../../../src/ui/format.ts';
import { embedded, movedTo, numberOf } from '../kit/address.ts';
import type { Checked } from '../kit/checks.ts';
import { CodeField } from '../kit/exercise.tsx';
import { Figure, LiveButton, namesOf, Select, Slider } from '../kit/figure.tsx';
import { loopWork } from '../kit/loop.ts';
import { type NamedCurve, curvesPlot, sharesPlot } from '../kit/plot.ts';
import { isPredicted, predictedCurve } from '../kit/predict.tsx';
import type { LoopOptions, LoopStep } from '../kit/runLoop.ts';
import text from './run.js?raw';
import {
  bandOf,
  endOf,
  type Measure,
  MEASURES,
  pointsOf,
  RATES,
  RECORDED,
  smoothed,
  STEPS,
  STILLS,
  timeParts,
} from './stills.ts';

/** Steps at which the reader predicts the mean reward. */
export const PREDICTED_STEPS = [1, 15, 30, 45, 60];

/** Steps of the runs in this tab: `text` is the reader's loop of figure 3.1, `rate` is the run with the learning rate of figure 3.2. */
const runs = { text: signal<readonly LoopStep[]>([]), rate: signal<readonly LoopStep[]>([]) };
const SOURCE = `Recorded: ${RECORDED.command}, commit ${RECORDED.commit}, ${RECORDED.adapter}, ${RECORDED.date}.`;

/** Seconds of the first press on two CPU cores without other work (`npm run bench:page -- --lesson 3-run`). */
const COLD_S = 35;

interface RunProps {
  which: keyof typeof runs;
  label: string;
  text: () => string;
  options?: LoopOptions;
  onMistake?: (mistake: Checked | undefined) => void;
}

/** The button that runs the loop of a figure. */
const Run = ({ which, label, text: loop, options = {}, onMistake = () => {} }: RunProps) => (
  <LiveButton
    id="loop"
    label={label}
    coldSeconds={COLD_S}
    run={loopWork({ text: loop, options, onMistake, onSteps: (steps) => (runs[which].value = steps) })}
    done="Trained"
    recorded="curves"
    onRecorded={runs[which].value.length > 0 ? () => (runs[which].value = []) : undefined}
  />
);

/** Figure 3.1. */
export function LoopFigure() {
  const code = useSignal(text);
  const mistake = useSignal<Checked | undefined>(undefined);
  const revealed = embedded !== null || isPredicted('3.1');
  const live = runs.text.value;
  const guess = predictedCurve('3.1');
  const [recorded] = RECORDED.runs;
  const curves: NamedCurve[] = [
    ...(revealed
      ? [
          { name: '', className: 'faint', points: pointsOf(recorded.reward) },
          { name: 'recorded', className: 'curve-a', points: pointsOf(smoothed(recorded.reward)) },
        ]
      : []),
    ...(guess
      ? [{ name: 'predicted', className: 'guess', points: PREDICTED_STEPS.map((at, i) => [at, guess[i]] as const) }]
      : []),
    ...(live.length > 0
      ? [{ name: 'here', className: 'curve-c', points: live.map(({ step, reward }) => [step, reward] as const) }]
      : []),
  ];
  const newest = live.at(-1);
  const says = newest
    ? `In this tab: reward ${short(live[0].reward)} at step 1, ${short(newest.reward)} at step ${newest.step}.`
    : revealed
      ? STILLS_SAY
      : 'Predict first, or look without a guess. Then the recorded run appears.';
  const label = `Reward over ${STEPS} steps. ${says}`;
  return (
    <Figure number="3.1" title="The whole run, as a file" says={says} source={newest ? 'Trained in this tab.' : SOURCE}>
      <CodeField label="The file run.js" code={code} result={mistake.value} />
      <div class="buttons">
        <Run which="text" label="Run it here" text={() => code.peek()} onMistake={(to) => (mistake.value = to)} />
        <button
          type="button"
          onClick={() => {
            code.value = text;
            mistake.value = undefined;
          }}
        >
          Reset
        </button>
      </div>
      <div
        class="svg"
        dangerouslySetInnerHTML={{
          __html: curvesPlot(curves, { steps: STEPS, y: [0, 1], of: MEASURES.reward.name }, label),
        }}
      />
      {(newest ?? revealed) && <Tries shown={newest ?? RECORDED.tries.at(-1)!} />}
    </Figure>
  );
}

const STILLS_SAY = /aria-label="([^"]*)"/.exec(STILLS['3.1'])![1];

/** Shows the tries of a step, one of each problem. */
function Tries({ shown: { step, tries } }: { shown: Pick<LoopStep, 'step' | 'tries'> }) {
  return (
    <div class="scroll" tabindex={0} role="group" aria-label="Tries of a step">
      <table class="words">
        <caption>Eight tries of step {step}</caption>
        <thead>
          <tr>
            <th>word</th>
            <th>backwards</th>
            <th>the model wrote</th>
            <th>reward</th>
          </tr>
        </thead>
        <tbody>
          {tries.slice(0, 8).map(({ problem, answer, text: written, reward }, i) => (
            <tr key={i}>
              <td>{problem}</td>
              <td>{answer}</td>
              <td class={written === answer ? 'good' : ''}>{written === '' ? 'nothing' : written}</td>
              <td>{short(reward)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Figure 3.2. */
export function RateFigure() {
  const exponent = numberOf('rate', -3, -5, -1);
  const lr = 10 ** exponent;
  const asked = movedTo('measure') as Measure;
  const measure: Measure = Object.hasOwn(MEASURES, asked) ? asked : 'reward';
  const revealed = embedded !== null || isPredicted('3.2');
  const live = runs.rate.value;
  const own = live.flatMap(({ step, ...values }) => {
    const value = values[measure];
    return value === undefined ? [] : [[step, value] as const];
  });
  const curves = [
    ...(revealed ? RATES.map((rate) => bandOf(rate, measure)) : []),
    ...(own.length > 0 ? [{ name: 'yours', className: 'guess', points: own }] : []),
  ];
  const says = revealed
    ? `Over the last five steps: ${RATES.map(({ lr: rate, name }) => `${short(endOf(rate, measure))} with ${name}`).join(', ')}.`
    : 'Predict first, or look without a guess. Then the curves appear.';
  const { name, most } = MEASURES[measure];
  return (
    <Figure
      number="3.2"
      title="Three learning rates"
      says={says}
      source={`${SOURCE} Line: mean of three seeds, each averaged over five steps. Area: lowest to highest seed.`}
    >
      <div class="controls">
        <Select control="measure" label="Draw" initial="reward" options={namesOf(MEASURES)} />
        <Slider
          control="rate"
          label="Your learning rate"
          value={exponent}
          least={-5}
          most={-1}
          step={0.5}
          shown={String(Number(lr.toPrecision(2)))}
        />
      </div>
      <div
        class="svg"
        dangerouslySetInnerHTML={{
          __html: curvesPlot(curves, { steps: STEPS, y: [0, most], of: name }, `${name} by learning rate. ${says}`),
        }}
      />
      <div class="buttons">
        <Run which="rate" label="Run yours" text={() => text} options={{ lr }} />
      </div>
    </Figure>
  );
}

/** Figure 3.4. */
export function TimeFigure() {
  const live = runs.text.value;
  const own = live.map(({ seconds: { draw, gradient, optimizer, other } }) => [draw, gradient, optimizer, other]);
  const parts = timeParts(own.length > 0 ? own : RECORDED.seconds);
  const words = parts.map((part) => `${part.name} ${part.shown}`).join('; ');
  return (
    <Figure
      number="3.4"
      title="Where the time of a step goes"
      says={`${own.length > 0 ? 'Your run' : 'The recorded run'}, mean of a step: ${words}.`}
      source={own.length > 0 ? 'Measured in this tab.' : `${SOURCE} The machine had other work too.`}
    >
      <div class="svg" dangerouslySetInnerHTML={{ __html: sharesPlot(parts, `Time of a step: ${words}.`) }} />
    </Figure>
  );
}
