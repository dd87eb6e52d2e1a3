/** A lesson over the page, in a column at the left: each screen has a text, one thing to press, and a condition that the page checks. */

import { nextScreen, screen, screens } from '../../state/lesson.ts';
import './lesson.css';

/** The current screen of the lesson. */
export function Lesson() {
  const now = screen.value;
  if (!now) return null;
  const count = screens.value!.length;
  const isLast = now.number === count;
  return (
    <>
      <p class="note">{`Lesson: reward hacking, ${now.number} of ${count}`}</p>
      <h2>{now.title}</h2>
      <p>{now.text}</p>
      <p>
        <b>Press:</b> {now.press}.
      </p>
      <p class={now.passed ? 'check passed' : 'check'} role="status">
        {now.passed ? (isLast ? 'Done. "Copy link" sends your result.' : 'Done.') : `Waits for ${now.waits}.`}
      </p>
      {!isLast && (
        <button type="button" aria-disabled={!now.passed} onClick={nextScreen}>
          Next
        </button>
      )}
    </>
  );
}
