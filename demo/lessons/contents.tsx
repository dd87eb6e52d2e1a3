/** Entry point of the contents page: six questions, before the first lesson and after the last. */

import { render } from 'preact';
import { useState } from 'preact/hooks';
import { useOwnId } from './kit/figure.tsx';
import { forget, keep, progress } from './kit/progress.ts';
import { QUESTIONS } from './questions.ts';

type Round = 'before' | 'after';

const keyOf = (round: Round, id: string) => `${round}.${id}`;

const answered = (round: Round): number =>
  QUESTIONS.filter(({ id }) => progress.value.answers[keyOf(round, id)] !== undefined).length;

function Ask({ round, title, button }: { round: Round; title: string; button: string }) {
  const name = useOwnId();
  const [chosen, choose] = useState<Readonly<Record<string, number>>>({});
  const missing = QUESTIONS.filter(({ id }) => chosen[id] === undefined);
  const [said, say] = useState('');
  const submit = (event: Event) => {
    event.preventDefault();
    if (missing.length > 0)
      return say(`Answer question ${QUESTIONS.indexOf(missing[0]) + 1} too. A guess is an answer.`);
    for (const { id } of QUESTIONS) keep('answers', keyOf(round, id), chosen[id]);
  };
  return (
    <form class="predict" onSubmit={submit} aria-label={title}>
      <h3>{title}</h3>
      {QUESTIONS.map(({ id, text, options }, q) => (
        <fieldset key={id}>
          <legend>
            <b>{q + 1}.</b> {text}
          </legend>
          {options.map((option, o) => (
            <label key={option} class="choice">
              <input
                type="radio"
                name={`${name}-${id}`}
                checked={chosen[id] === o}
                onChange={() => choose({ ...chosen, [id]: o })}
              />
              {option}
            </label>
          ))}
        </fieldset>
      ))}
      <button type="submit" class="primary">
        {button}
      </button>
      <p class="result wrong" role="status">
        {said}
      </p>
    </form>
  );
}

function Compared() {
  const of = (round: Round, id: string) => progress.value.answers[keyOf(round, id)];
  const right = (round: Round) => QUESTIONS.filter(({ id, right: which }) => of(round, id) === which).length;
  return (
    <section aria-label="Your answers" class="predict">
      <p role="status">
        Right before: {right('before')} of {QUESTIONS.length}. Right after: {right('after')} of {QUESTIONS.length}. Only
        you see this.
      </p>
      <ol>
        {QUESTIONS.map(({ id, text, options, right: which, why, lesson }) => (
          <li key={id}>
            <p>
              {text} <b>{options[which]}.</b> {why}
              {lessons.has(lesson) && (
                <>
                  {' '}
                  <a href={`./${lessons.get(lesson)}/index.html`}>Lesson {lesson}</a>.
                </>
              )}
            </p>
            <p class="note">
              Before: {options[of('before', id)] ?? 'no answer'}. After: {options[of('after', id)] ?? 'no answer'}.
            </p>
          </li>
        ))}
      </ol>
    </section>
  );
}

/** Folders of the lessons that the page lists, by number. */
const lessons = new Map(
  [...document.querySelectorAll<HTMLElement>('[data-lesson]')].map(({ dataset: { lesson = '' } }) => [
    Number(lesson[0]),
    lesson,
  ]),
);

function Questions() {
  const [again, setAgain] = useState(false);
  const [before, after] = [answered('before'), answered('after')].map((count) => count === QUESTIONS.length);
  return (
    <>
      {!before && <Ask round="before" title="Before the first lesson" button="Keep my answers" />}
      {before && !after && !again && (
        <div class="buttons">
          <span>Your answers are kept in this browser.</span>
          <button type="button" onClick={() => setAgain(true)}>
            I have done the lessons: ask me again
          </button>
        </div>
      )}
      {before && !after && again && <Ask round="after" title="After the last lesson" button="Compare" />}
      {before && after && <Compared />}
      {before && (
        <button type="button" onClick={forget}>
          Forget everything
        </button>
      )}
    </>
  );
}

const place = document.querySelector('[data-questions]')!;
place.replaceChildren();
render(<Questions />, place);
