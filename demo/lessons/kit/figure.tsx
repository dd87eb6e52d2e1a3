/**
 * The frame of a figure: its title, a sentence that changes with the figure, the source of its data, and its controls: sliders, choices,
 * and the button for live work.
 */

import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { describe } from '../../../src/errors.ts';
import { duration, short } from '../../../src/ui/format.ts';
import { isHidden, move, movedTo } from './address.ts';
import { keep, progress } from './progress.ts';

let ids = 0;

/** Returns an id that is unique in the page. Preact's own ids are unique only within one rendered tree, and a lesson has many. */
export function useOwnId(): string {
  return useState(() => `part-${ids++}`)[0];
}

interface FigureProps {
  number: string;
  title: string;
  /** A sentence that describes the current state of the figure. Screen readers announce the sentence when it changes. */
  says: string;
  /** Source of the figure's data: command and commit. */
  source?: string | undefined;
  children: ComponentChildren;
}

/** Shows a figure with its frame. */
export function Figure({ number, title, says, source, children }: FigureProps) {
  return (
    <>
      <h3>
        Figure {number}. {title}
      </h3>
      {children}
      <p class="says" role="status">
        {says}
      </p>
      {source !== undefined && <p class="source">{source}</p>}
    </>
  );
}

interface SliderProps {
  /** Name in the address. */
  control: string;
  label: string;
  value: number;
  least: number;
  most: number;
  step: number;
  /** The value as text. */
  shown: string;
}

/** A slider whose value is stored in the address. */
export function Slider({ control, label, value, least, most, step, shown }: SliderProps) {
  const id = useOwnId();
  if (isHidden(control)) return null;
  return (
    <div class="field">
      <label for={id}>
        {label}: <output>{shown}</output>
      </label>
      <input
        id={id}
        type="range"
        min={least}
        max={most}
        step={step}
        value={value}
        aria-valuetext={shown}
        onInput={(event) => move({ [control]: event.currentTarget.value })}
      />
    </div>
  );
}

/** A slider of powers of two: the address has the exponent, `value` and the text the power. */
export function PowerSlider({ value, step = 1, ...props }: Omit<SliderProps, 'shown' | 'step'> & { step?: number }) {
  const shown = Number.isInteger(value) ? `${value}` : short(value);
  return <Slider {...props} value={Math.log2(value)} step={step} shown={shown} />;
}

interface SelectProps {
  control: string;
  label: string;
  options: readonly { value: string; name: string }[];
  initial: string;
  /** Names of other controls that are reset when the reader chooses. */
  resets?: readonly string[];
}

/** Returns the entries of a table as options. */
export const namesOf = (table: Readonly<Record<string, { name: string }>>): SelectProps['options'] =>
  Object.entries(table).map(([value, { name }]) => ({ value, name }));

/** Options of which the reader chooses one. The choice is stored in the address. */
export function Select({ control, label, options, initial, resets = [] }: SelectProps) {
  const id = useOwnId();
  if (isHidden(control)) return null;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select
        id={id}
        value={movedTo(control) ?? initial}
        onChange={(event) =>
          move({ ...Object.fromEntries(resets.map((name) => [name, undefined])), [control]: event.currentTarget.value })
        }
      >
        {options.map(({ value, name }) => (
          <option key={value} value={value}>
            {name}
          </option>
        ))}
      </select>
    </div>
  );
}

interface LiveButtonProps {
  /** Name under which the duration of the work is stored. */
  id: string;
  label: string;
  /** Estimated seconds of the work on two CPU cores, from the first press of the button. */
  coldSeconds: number;
  /** Does the live work. Resolves to a sentence about its result; undefined if it was ended early. */
  run: (signal: AbortSignal, say: (text: string) => void) => Promise<string | undefined>;
  /** Past participle that describes the finished work in the message "... in 3 s". */
  done: string;
  /** Name of the recorded data. Default: tries. */
  recorded?: string;
  /** Called to show the recorded data again; undefined if they are shown now. */
  onRecorded: (() => void) | undefined;
}

/** A button for live work: says how long the work takes on this machine, reports progress, and stops the work immediately. */
export function LiveButton({ id, label, coldSeconds, run, done, recorded = 'tries', onRecorded }: LiveButtonProps) {
  const ending = useSignal<AbortController | undefined>(undefined);
  const said = useSignal('');
  const last = progress.value.seconds[id];
  const start = async () => {
    const stop = new AbortController();
    const { signal } = stop;
    ending.value = stop;
    said.value = 'Opening the model...';
    const started = performance.now();
    const say = (text: string) => {
      if (!signal.aborted) said.value = text;
    };
    try {
      const result = await run(signal, say);
      if (signal.aborted) return;
      if (result === undefined) return say('Stopped.');
      const seconds = (performance.now() - started) / 1000;
      keep('seconds', id, seconds);
      say(`${done} in ${duration(seconds)}. ${result}`);
    } catch (error) {
      say(`${describe(error).replace(/[^.?!]$/, '$&.')} The recorded ${recorded} stay.`);
    } finally {
      if (ending.peek() === stop) ending.value = undefined;
    }
  };
  const end = () => {
    ending.value?.abort();
    ending.value = undefined;
    said.value = 'Stopped.';
  };
  return (
    <>
      {ending.value ? (
        <button type="button" onClick={end}>
          Stop
        </button>
      ) : (
        <button type="button" onClick={() => void start()}>
          {label} ({last === undefined ? `about ${coldSeconds} s on two CPU cores` : `last time ${duration(last)}`})
        </button>
      )}
      {onRecorded && !ending.value && (
        <button type="button" onClick={onRecorded}>
          Show the recorded {recorded}
        </button>
      )}
      <span role="status" class="note">
        {said.value}
      </span>
    </>
  );
}
