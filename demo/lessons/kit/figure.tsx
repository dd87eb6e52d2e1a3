/** The frame of a figure: its title, its controls, a sentence that changes with them, and where its data are from. */

import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { isHidden, move, movedTo } from './address.ts';

let ids = 0;

/** Returns an id of the page. Preact's own ids repeat in every part that is rendered by itself. */
export function useOwnId(): string {
  return useState(() => `part-${ids++}`)[0];
}

interface FigureProps {
  number: string;
  title: string;
  /** One sentence that describes the figure as it is now. Screen readers announce it when it changes. */
  says: string;
  /** Command and commit of the data. */
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

/** A slider whose value is in the address. */
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

interface SelectProps {
  control: string;
  label: string;
  options: readonly { value: string; name: string }[];
  initial: string;
  /** Other controls that a choice puts back. */
  resets?: readonly string[];
}

/** A choice that is in the address. */
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
