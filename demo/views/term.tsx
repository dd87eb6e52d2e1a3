/** A word with its meaning in a line: on hover, on focus and on touch; Escape or a click elsewhere closes it. */

import { type ComponentChildren, render } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { GLOSSARY, type Word } from './glossary.ts';
import './term.css';

/** Between the word and its meaning, and to the window's edges, in CSS pixels. */
const GAP = 6;

/** Long enough to move the pointer from the word onto its meaning. */
const LINGER_MS = 200;

/** Preact's own ids are the same in every island of the page. */
let made = 0;

/** @param children what is shown in place of the word itself */
export const Term = ({ word, children = word }: { word: Word; children?: ComponentChildren }) => (
  <Explained meaning={GLOSSARY[word]}>{children}</Explained>
);

function Explained({ meaning: text, children }: { meaning: string; children: ComponentChildren }) {
  const [id] = useState(() => `meaning-${made++}`);
  const button = useRef<HTMLButtonElement>(null);
  const meaning = useRef<HTMLSpanElement>(null);
  const leaving = useRef<ReturnType<typeof setTimeout>>(undefined);
  const stay = () => clearTimeout(leaving.current);
  const hide = () => {
    stay();
    meaning.current?.hidePopover();
  };
  const show = () => {
    stay();
    if (!meaning.current || !button.current) return;
    meaning.current.showPopover();
    place(meaning.current, button.current.getBoundingClientRect());
  };
  const leave = () => {
    stay();
    leaving.current = setTimeout(() => {
      if (button.current !== document.activeElement) meaning.current?.hidePopover();
    }, LINGER_MS);
  };
  return (
    <>
      <button
        ref={button}
        type="button"
        class="term"
        aria-describedby={id}
        onMouseEnter={show}
        onMouseLeave={leave}
        onFocus={show}
        onBlur={hide}
        onClick={show}
      >
        {children}
      </button>
      <span
        ref={meaning}
        id={id}
        class="meaning"
        role="tooltip"
        popover="auto"
        onMouseEnter={stay}
        onMouseLeave={leave}
      >
        {text}
      </span>
    </>
  );
}

/** A title with its meaning, for views that are no components. */
export function explained(title: string, meaning: string): Node {
  const place = document.createElement('span');
  render(<Explained meaning={meaning}>{title}</Explained>, place);
  return place;
}

/** Under the word, or above it where there is no room; always inside the window. */
function place(meaning: HTMLElement, word: DOMRect): void {
  const { width, height } = meaning.getBoundingClientRect();
  const fits = word.bottom + GAP + height <= innerHeight;
  const top = fits ? word.bottom + GAP : Math.max(GAP, word.top - GAP - height);
  const left = Math.max(GAP, Math.min(word.left, innerWidth - width - GAP));
  meaning.style.translate = `${left}px ${top}px`;
}
