/** A term with its explanation in a line, shown on hover, focus and touch. Escape or a click elsewhere closes it. */

import { type ComponentChildren, render } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { GLOSSARY, type Word } from './glossary.ts';
import './term.css';

/** Distance between the term and its explanation, and to the window's edges, in CSS pixels. */
const GAP = 6;

/** Milliseconds in which the pointer can move from the term to its explanation before the explanation closes. */
const LINGER_MS = 200;

/** Number of ids so far. Preact's own ids are unique only within one rendered tree, and the page has several. */
let made = 0;

/** @param children content that is shown instead of the term itself */
export const Term = ({ word, children = word }: { word: Word; children?: ComponentChildren }) => (
  <Explained meaning={GLOSSARY[word]}>{children}</Explained>
);

/** @param meaning text that is shown on hover, focus and touch */
export function Explained({ meaning: text, children }: { meaning: string; children: ComponentChildren }) {
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

/** Returns a title with its explanation, for views that are not components. */
export function explained(title: string, meaning: string): Node {
  const place = document.createElement('span');
  render(<Explained meaning={meaning}>{title}</Explained>, place);
  return place;
}

/** Places the explanation under the term, or above the term if there is not enough space; always inside the window. */
function place(meaning: HTMLElement, word: DOMRect): void {
  const { width, height } = meaning.getBoundingClientRect();
  const fits = word.bottom + GAP + height <= innerHeight;
  const top = fits ? word.bottom + GAP : Math.max(GAP, word.top - GAP - height);
  const left = Math.max(GAP, Math.min(word.left, innerWidth - width - GAP));
  meaning.style.translate = `${left}px ${top}px`;
}
