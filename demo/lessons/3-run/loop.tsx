/** Figure 3.1, the loop as text that runs, figure 3.2, its learning rate, and figure 3.4, its time. */

import { signal, useSignal } from '@preact/signals';
import { describe } from '../../../src/errors.ts';
import { duration, short } from '../../../src/ui/format.ts';
import { embedded, movedTo, numberOf } from '../kit/address.ts';
import type { Checked } from '../kit/checks.ts';
import { CodeField } from '../kit/exercise.tsx';
import { Figure, Select, Slider } from '../kit/figure.tsx';
import { type NamedCurve, curvesPlot, sharesPlot } from '../kit/plot.ts';
import { isPredicted, predictedCurve } from '../kit/predict.tsx';
import { keep, progress } from '../kit/progress.ts';
import { LoopError, type LoopOptions, type LoopStep } from '../kit/runLoop.ts';
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
/** The loop that is running. */
const running = signal<{ which: keyof typeof runs; stop: AbortController } | undefined>(undefined);

const SOURCE = `Recorded: ${RECORDED.command}, commit ${RECORDED.commit}, ${RECORDED.adapter}, ${RECORDED.date}.`;

interface LoopWork {
  which: keyof typeof runs;
  text: string;
  options?: LoopOptions;
  say: (text: string) => void;
}

/** Runs the loop until its end or until Stop. Returns the error in the loop's text; undefined if the loop ran. */
async function run({ which, text: code, options = {}, say }: LoopWork): Promise<Checked | undefined> {
  const stop = new AbortController();
  running.value?.stop.abort();
  running.value = { which, stop };
  const steps = runs[which];
  say('Opening the model...');
  const started = performance.now();
  const seconds = () => (performance.now() - started) / 1000;
  try {
    const { runInWorker } = await import('../kit/loop.ts');
    const onStep = (step: LoopStep) => {
      if (stop.signal.aborted) return;
      steps.value = step.step === 1 ? [step] : [...steps.value, step];
      say(`Step ${step.step}, reward ${short(step.reward)}.`);
    };
    const facts = await runInWorker({
      ...{ text: code, options, onStep, signal: stop.signal },
      checkpoint: 'checkpoints/reverse-text',
    });
    if (!facts) return undefined;
    keep('seconds', 'loop', seconds());
    say(`Done: ${facts.updates} updates in ${duration(seconds())}.`);
  } catch (error) {
    say(error instanceof LoopError ? '' : `${describe(error)} The recorded run stays.`);
    if (error instanceof LoopError) return { ok: false, says: error.message, line: error.line };
  } finally {
    if (running.peek()?.stop === stop) running.value = undefined;
  }
  return undefined;
}

/** Estimated seconds of 60 steps on two quiet cores: 5 s to load the model and 0.4 s per step. */
const COLD_S = 30;

const lastTime = (): string => {
  const seconds = progress.value.seconds['loop'];
  return seconds === undefined ? `about ${COLD_S} s on two CPU cores` : `last time ${duration(seconds)}`;
};

interface RunButtonProps {
  which: keyof typeof runs;
  name: string;
  say: (text: string) => void;
  onRun: () => void;
}

function RunButton({ which, name, say, onRun }: RunButtonProps) {
  if (running.value?.which !== which)
    return (
      <button type="button" class="primary" onClick={onRun}>
        {name} ({lastTime()})
      </button>
    );
  return (
    <button
      type="button"
      onClick={() => {
        running.value?.stop.abort();
        say('Stopped.');
      }}
    >
      Stop
    </button>
  );
}

/** Figure 3.1. */
export function LoopFigure() {
  const code = useSignal(text);
  const mistake = useSignal<Checked | undefined>(undefined);
  const said = useSignal('');
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
  const start = async () => {
    mistake.value = undefined;
    mistake.value = await run({ which: 'text', text: code.peek(), say: (to) => (said.value = to) });
  };
  const label = `Reward over ${STEPS} steps. ${says}`;
  return (
    <Figure number="3.1" title="The whole run, as a file" says={says} source={newest ? 'Trained in this tab.' : SOURCE}>
      <CodeField label="The file run.js" code={code} result={mistake.value} />
      <div class="buttons">
        <RunButton which="text" name="Run it here" say={(to) => (said.value = to)} onRun={() => void start()} />
        <button
          type="button"
          onClick={() => {
            code.value = text;
            mistake.value = undefined;
          }}
        >
          Reset
        </button>
        <span role="status" class="note">
          {said.value}
        </span>
      </div>
      <p class={`result ${mistake.value ? 'wrong' : ''}`} role="status">
        {mistake.value?.says}
      </p>
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
  );
}

/** Figure 3.2. */
export function RateFigure() {
  const said = useSignal('');
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
  const start = () =>
    void run({ which: 'rate', text, options: { lr }, say: (to) => (said.value = to) }).then((mistake) => {
      if (mistake) said.value = mistake.says;
    });
  const { name, most } = MEASURES[measure];
  return (
    <Figure
      number="3.2"
      title="Three learning rates"
      says={says}
      source={`${SOURCE} Line: mean of three seeds, each averaged over five steps. Area: lowest to highest seed.`}
    >
      <div class="controls">
        <Select
          control="measure"
          label="Draw"
          initial="reward"
          options={Object.entries(MEASURES).map(([value, one]) => ({ value, name: one.name }))}
        />
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
        <RunButton which="rate" name="Run yours" say={(to) => (said.value = to)} onRun={start} />
        <span role="status" class="note">
          {said.value}
        </span>
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
