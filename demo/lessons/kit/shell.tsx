/**
 * Puts a lesson's live parts into its HTML. The HTML has the text, and a still picture in place of each figure, for readers without
 * JavaScript.
 */

import { type ComponentChild, render } from 'preact';
import { missing, watchParts } from '../../state/missingParts.ts';
import type { Word } from '../../views/glossary.ts';
import { Term } from '../../views/term.tsx';
import { embedded } from './address.ts';
import type { Exercise } from './checks.ts';
import { ExerciseView } from './exercise.tsx';
import { forget, progress } from './progress.ts';

interface Lesson {
  /** Live figures by number. */
  figures: Readonly<Record<string, () => ComponentChild>>;
  /** Predictions by number. */
  predictions: Readonly<Record<string, () => ComponentChild>>;
  exercises: readonly Exercise[];
  /** Ids of exercises outside `exercises` that a reader can solve. */
  solvable?: readonly string[];
  /** Components that are shown with an exercise, by the exercise's number. */
  pictures?: Readonly<Record<string, () => ComponentChild>>;
}

/** Renders into every element that has the attribute, replacing the element's content. */
function fill(attribute: string, content: (value: string) => ComponentChild): void {
  for (const place of document.querySelectorAll<HTMLElement>(`[${attribute}]`)) {
    place.replaceChildren();
    render(content(place.getAttribute(attribute)!), place);
  }
}

/** Shows only one figure, the one that `?embed=` names. */
function showAlone(figure: string): void {
  const place = document.querySelector(`[data-figure="${CSS.escape(figure)}"]`);
  if (!place) return;
  document.body.dataset['embed'] = '';
  place.setAttribute('data-alone', '');
}

/** Mounts the figures, predictions and exercises of a lesson into its page. */
export function openLesson({ figures, predictions, exercises, solvable = [], pictures = {} }: Lesson): void {
  if (embedded !== null) showAlone(embedded);
  watchParts();
  const notices = document.createElement('div');
  document.querySelector('main')!.prepend(notices);
  render(<MissingParts />, notices);
  fill('data-predict', (id) => ((Prediction) => <Prediction />)(predictions[id]));
  fill('data-figure', (id) => ((Shown) => <Shown />)(figures[id]));
  fill('data-picture', (id) => ((Shown) => <Shown />)(pictures[id]));
  fill('data-exercise', (id) => <ExerciseView exercise={exercises.find((one) => one.id === id)!} />);
  fill('data-progress', () => <Progress ids={[...exercises.map(({ id }) => id), ...solvable]} />);
  for (const place of document.querySelectorAll<HTMLElement>('dfn[data-term]')) {
    const text = place.textContent;
    place.replaceChildren();
    render(<Term word={place.dataset['term'] as Word}>{text}</Term>, place);
    keepTogether(place);
  }
}

/** Keeps punctuation on the same line as the term before it. By default a line can break after a button. */
function keepTogether(term: HTMLElement): void {
  const next = term.nextSibling;
  const [mark] = (next instanceof Text && /^[.,:;?!)]+/.exec(next.data)) || [''];
  if (mark === '') return;
  (next as Text).data = (next as Text).data.slice(mark.length);
  const both = document.createElement('span');
  both.className = 'together';
  term.before(both);
  both.append(term, mark);
}

function MissingParts() {
  const found = missing.value;
  return (
    <div role="status" aria-live="polite">
      {found && (
        <p class="notice">
          <b>{found.title}</b> {found.text} Solved exercises are kept.{' '}
          <button type="button" onClick={() => location.reload()}>
            Reload
          </button>
        </p>
      )}
    </div>
  );
}

function Progress({ ids }: { ids: readonly string[] }) {
  const solved = ids.filter((id) => progress.value.solved[id] === true).length;
  return (
    <>
      <span>
        {solved} of {ids.length} exercises solved. This browser remembers it, and nothing is sent.{' '}
      </span>
      <button type="button" onClick={forget}>
        Forget
      </button>
    </>
  );
}
