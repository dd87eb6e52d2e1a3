/** A prediction: the reader chooses before the figure shows the truth, and cannot choose again. No choice is called wrong. */

import { useState } from 'preact/hooks';
import { useOwnId } from './figure.tsx';
import { keep, progress } from './progress.ts';

interface PredictProps {
  id: string;
  question: string;
  options: readonly { value: string; name: string; /** What the choice means beside the truth. */ means: string }[];
  /** Called when the reader has chosen, or looks without a guess. */
  onLocked: () => void;
}

/** True once the reader has chosen, or has looked without a guess. */
export const isPredicted = (id: string): boolean => progress.value.predicted[id] !== undefined;

/** The chosen option; '' without a guess, undefined before. */
export const predicted = (id: string): string | undefined => progress.value.predicted[id];

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
