/**
 * A prediction: the reader chooses, or draws a curve, before the figure shows the true result, and can do so only once. No prediction is
 * called wrong.
 */

import { useState } from 'preact/hooks';
import { short } from '../../../src/ui/format.ts';
import { useOwnId } from './figure.tsx';
import { curvesPlot, curvesScale } from './plot.ts';
import { keep, progress } from './progress.ts';

interface PredictProps {
  id: string;
  question: string;
  options: readonly { value: string; name: string; /** What the choice means beside the truth. */ means: string }[];
  /** Called when the reader has chosen an option, or has asked for the result without a guess. */
  onLocked: () => void;
}

/** True once the reader has chosen an option, or has asked for the result without a guess. */
export const isPredicted = (id: string): boolean => progress.value.predicted[id] !== undefined;

/** The option that the reader chose; '' = looked without a guess; undefined = not yet answered. */
export const predicted = (id: string): string | undefined => progress.value.predicted[id];

/** Asks the reader to choose an option before the figure shows the true result. */
export function Predict({ id, question, options, onLocked }: PredictProps) {
  const name = useOwnId();
  const [chosen, choose] = useState('');
  const locked = predicted(id);
  const lock = (value: string) => {
    keep('predicted', id, value);
    onLocked();
  };
  const meaning = options.find(({ value }) => value === locked)?.means;
  return (
    <form
      class="predict"
      onSubmit={(event) => {
        event.preventDefault();
        if (chosen !== '') lock(chosen);
      }}
    >
      <fieldset disabled={locked !== undefined}>
        <legend>
          <b>Predict first.</b> {question}
        </legend>
        {options.map((option) => (
          <label key={option.value} class="choice">
            <input
              type="radio"
              name={name}
              value={option.value}
              checked={(locked ?? chosen) === option.value}
              onChange={() => choose(option.value)}
            />
            {option.name}
          </label>
        ))}
      </fieldset>
      {locked === undefined && (
        <div class="buttons">
          <button type="submit" class="primary" aria-disabled={chosen === ''}>
            Lock in
          </button>
          <button type="button" onClick={() => lock('')}>
            Look without a guess
          </button>
        </div>
      )}
      <p role="status">{locked === undefined ? '' : (meaning ?? 'The figure shows it now.')}</p>
    </form>
  );
}

interface PredictCurveProps {
  id: string;
  question: string;
  /** Steps, ascending, at which the reader sets a value. The last one is the end of the axis. */
  steps: readonly number[];
  /** Name of the vertical axis, which runs from 0 to 1. */
  of: string;
  /** Returns a sentence that compares the drawn values with the true ones. */
  means: (values: readonly number[]) => string;
  onLocked: () => void;
}

/** The values of the reader's curve; undefined if the reader looked without a guess, or has not answered yet. */
export function predictedCurve(id: string): number[] | undefined {
  const values = (predicted(id) ?? '').split(',').map(Number);
  return predicted(id) && values.every(Number.isFinite) ? values : undefined;
}

/** A curve that the reader draws with the pointer, or with one slider per point. */
export function PredictCurve({ id, question, steps, of, means, onLocked }: PredictCurveProps) {
  const own = useOwnId();
  const [values, setValues] = useState<readonly number[]>(steps.map(() => 0.5));
  const locked = predicted(id);
  const lock = (value: string) => {
    keep('predicted', id, value);
    onLocked();
  };
  const shown = predictedCurve(id) ?? values;
  const options = { steps: steps.at(-1)!, y: [0, 1] as const, of };
  const guess = { name: '', className: 'guess', points: steps.map((step, i) => [step, shown[i]] as const) };
  const set = (i: number, to: number) =>
    setValues((before) => before.map((value, k) => (k === i ? Math.min(1, Math.max(0, to)) : value)));
  const draw = (event: PointerEvent & { currentTarget: HTMLElement }) => {
    if (locked !== undefined || (event.type === 'pointermove' && event.buttons === 0)) return;
    const box = event.currentTarget.querySelector('svg')!.getBoundingClientRect();
    const scale = curvesScale(options);
    const pixel = (at: number, size: number, whole: number) => (at / size) * whole;
    const step = scale.stepAt(pixel(event.clientX - box.left, box.width, scale.width));
    const distances = steps.map((one) => Math.abs(one - step));
    const value = scale.valueAt(pixel(event.clientY - box.top, box.height, scale.height));
    set(distances.indexOf(Math.min(...distances)), Math.round(100 * value) / 100);
  };
  const label = `Your curve: ${steps.map((step, i) => `${short(shown[i])} at step ${step}`).join(', ')}.`;
  return (
    <form
      class="predict"
      onSubmit={(event) => {
        event.preventDefault();
        lock(values.join(','));
      }}
    >
      <fieldset disabled={locked !== undefined}>
        <legend>
          <b>Predict first.</b> {question}
        </legend>
        {locked !== '' && (
          <div
            class={`svg ${locked === undefined ? 'drawable' : ''}`}
            onPointerDown={draw}
            onPointerMove={draw}
            dangerouslySetInnerHTML={{ __html: curvesPlot([guess], options, label) }}
          />
        )}
        {locked === undefined && (
          <div class="fields">
            {steps.map((step, i) => (
              <div class="field" key={step}>
                <label for={`${own}-${i}`}>
                  Step {step}: <output>{short(values[i])}</output>
                </label>
                <input
                  id={`${own}-${i}`}
                  type="range"
                  min={0}
                  max={1}
                  step={0.05}
                  value={values[i]}
                  aria-valuetext={short(values[i])}
                  onInput={(event) => set(i, Number(event.currentTarget.value))}
                />
              </div>
            ))}
          </div>
        )}
      </fieldset>
      {locked === undefined && (
        <div class="buttons">
          <button type="submit" class="primary">
            Lock in
          </button>
          <button type="button" onClick={() => lock('')}>
            Look without a guess
          </button>
        </div>
      )}
      <p role="status">
        {locked === undefined ? '' : locked === '' ? 'The figure shows it now.' : means(predictedCurve(id) ?? [])}
      </p>
    </form>
  );
}
