/** An exercise: what the reader gives, the check, a hint after the first mistake, and the answer after the second. */

import { signal, useSignal } from '@preact/signals';
import type { ComponentType } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import {
  check,
  type Checked,
  checkCode,
  type CodeExercise,
  type Exercise,
  type NumbersExercise,
  type TickExercise,
} from './checks.ts';
import { useOwnId } from './figure.tsx';
import { keep, progress } from './progress.ts';

type CodeEditor = typeof import('../../views/rules/editor.tsx').Editor;

/** Counts mistakes and shows what the check said. */
function useChecks(exercise: Exercise) {
  const [result, setResult] = useState<Checked | undefined>(undefined);
  const [mistakes, setMistakes] = useState(0);
  const show = (to: Checked) => {
    setResult(to);
    if (to.ok) keep('solved', exercise.id, true);
    else setMistakes(mistakes + 1);
  };
  return { result, mistakes, show };
}

export function ExerciseView({ exercise }: { exercise: Exercise }) {
  const solved = progress.value.solved[exercise.id] === true;
  return (
    <section class="exercise" aria-label={`Exercise ${exercise.id}`}>
      <h3>
        Exercise {exercise.id}. {exercise.title} {solved && <span class="solved">solved</span>}
      </h3>
      <p>{exercise.task}</p>
      {exercise.kind === 'code' && <Code exercise={exercise} />}
      {exercise.kind === 'ticks' && <Ticks exercise={exercise} />}
      {exercise.kind === 'numbers' && <Numbers exercise={exercise} />}
    </section>
  );
}

interface SaidProps {
  exercise: Exercise;
  result: Checked | undefined;
  mistakes: number;
  /** Fills the answer in. */
  onAnswer: () => void;
}

function Said({ exercise, result, mistakes, onAnswer }: SaidProps) {
  return (
    <>
      <p class={`result ${result ? (result.ok ? 'right' : 'wrong') : ''}`} role="status">
        {result?.says}
      </p>
      {result?.ok !== true && mistakes >= 1 && <p class="hint">Hint: {exercise.hint}</p>}
      {result?.ok !== true && mistakes >= 2 && (
        <button type="button" onClick={onAnswer}>
          Show the answer
        </button>
      )}
    </>
  );
}

function Code({ exercise }: { exercise: CodeExercise }) {
  const { result, mistakes, show } = useChecks(exercise);
  const code = useSignal(exercise.start);
  const [running, setRunning] = useState(false);
  const run = async () => {
    if (running) return;
    setRunning(true);
    try {
      show(await checkCode(exercise, code.peek()));
    } catch (error) {
      show({ ok: false, says: `The sandbox did not start (${String(error)}). Reload the page and run it again.` });
    } finally {
      setRunning(false);
    }
  };
  return (
    <div
      onKeyDown={(event) => {
        if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
        event.preventDefault();
        void run();
      }}
    >
      <CodeField label={`Code of exercise ${exercise.id}`} code={code} result={result} />
      <div class="buttons">
        <button type="button" class="primary" aria-disabled={running} onClick={() => void run()}>
          {running ? 'Running...' : 'Run'}
        </button>
        <button type="button" onClick={() => (code.value = exercise.start)}>
          Reset
        </button>
        <span class="note">or Ctrl+Enter. Tab leaves the editor.</span>
      </div>
      <Said exercise={exercise} result={result} mistakes={mistakes} onAnswer={() => (code.value = exercise.answer)} />
    </div>
  );
}

/** A plain field at first. The editor with colours is loaded when the field comes near the screen, unless the reader writes already. */
export function CodeField({
  label,
  code,
  result,
}: {
  label: string;
  code: ReturnType<typeof signal<string>>;
  result?: Checked | undefined;
}) {
  const place = useRef<HTMLDivElement>(null);
  const [loaded, setLoaded] = useState<{ Editor: CodeEditor } | undefined>(undefined);
  useEffect(() => {
    const seen = new IntersectionObserver(
      ([entry]) => {
        if (!entry.isIntersecting) return;
        seen.disconnect();
        void Promise.all([import('../../views/rules/editor.tsx'), import('../../views/rules/rules.css')])
          .then(([editor]) => {
            if (!place.current?.contains(document.activeElement)) setLoaded(editor);
          })
          .catch(() => {}); // the plain field stays
      },
      { rootMargin: '400px' },
    );
    seen.observe(place.current!);
    return () => seen.disconnect();
  }, []);
  const Editor = loaded?.Editor as ComponentType<Parameters<CodeEditor>[0]> | undefined;
  const problem =
    result && !result.ok
      ? { state: 'refused' as const, text: result.says, line: result.line, column: result.column }
      : undefined;
  return (
    <div ref={place} class="cell rules">
      {Editor ? (
        <Editor
          label={label}
          code={code as Parameters<CodeEditor>[0]['code']}
          problem={problem}
          onChange={(to) => (code.value = to)}
        />
      ) : (
        <textarea
          aria-label={label}
          rows={9}
          spellcheck={false}
          value={code.value}
          onInput={(event) => (code.value = event.currentTarget.value)}
        />
      )}
    </div>
  );
}

function Ticks({ exercise }: { exercise: TickExercise }) {
  const { result, mistakes, show } = useChecks(exercise);
  const [ticked, setTicked] = useState<readonly string[]>([]);
  const toggle = (id: string) => setTicked(ticked.includes(id) ? ticked.filter((one) => one !== id) : [...ticked, id]);
  return (
    <>
      <div class="ticks" role="group" aria-label={exercise.title}>
        {exercise.options.map(({ id, label }) => (
          <label key={id} class="choice">
            <input type="checkbox" checked={ticked.includes(id)} onChange={() => toggle(id)} />
            {label}
          </label>
        ))}
      </div>
      <button type="button" class="primary" onClick={() => show(check(exercise, ticked))}>
        Check
      </button>
      <Said exercise={exercise} result={result} mistakes={mistakes} onAnswer={() => setTicked(exercise.answer)} />
    </>
  );
}

function Numbers({ exercise }: { exercise: NumbersExercise }) {
  const { result, mistakes, show } = useChecks(exercise);
  const [texts, setTexts] = useState<readonly string[]>(exercise.fields.map(() => ''));
  const id = useOwnId();
  const numbers = texts.map((text) =>
    text.trim() === '' ? NaN : Number(text.trim().replace(',', '.').replace('\u2212', '-')),
  );
  const submit = (event: Event) => {
    event.preventDefault();
    if (numbers.some(Number.isNaN))
      show({ ok: false, says: 'A field holds no number. Write both, such as 0.5 and -0.5.' });
    else show(check(exercise, numbers));
  };
  return (
    <form onSubmit={submit}>
      <div class="fields">
        {exercise.fields.map((field, f) => (
          <div class="field" key={field}>
            <label for={`${id}-${f}`}>{field}</label>
            <input
              id={`${id}-${f}`}
              inputMode="text"
              autocomplete="off"
              value={texts[f]}
              onInput={(event) => setTexts(texts.map((text, i) => (i === f ? event.currentTarget.value : text)))}
            />
          </div>
        ))}
      </div>
      <button type="submit" class="primary">
        Check
      </button>
      <Said
        exercise={exercise}
        result={result}
        mistakes={mistakes}
        onAnswer={() => setTexts(exercise.answer.map(String))}
      />
    </form>
  );
}
