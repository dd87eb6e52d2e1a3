/** An exercise: what the reader gives, the check, a hint after the first mistake, and the answer after the second. */

import { signal, useSignal } from '@preact/signals';
import type { ComponentType } from 'preact';
import { describe } from '../../../src/errors.ts';
import { useEffect, useRef, useState } from 'preact/hooks';
import {
  check,
  type Checked,
  checkCode,
  checkKernel,
  checkLoop,
  type ChoiceExercise,
  type CodeExercise,
  type Exercise,
  type KernelExercise,
  type LoopExercise,
  type MatchExercise,
  type NumbersExercise,
  type TickExercise,
} from './checks.ts';
import { useOwnId } from './figure.tsx';
import { keep, progress } from './progress.ts';

type CodeEditor = typeof import('../../views/rules/editor.tsx').Editor;

/** Counts the reader's mistakes in an exercise, and stores the result of the last check. */
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

/** Shows an exercise of any kind. */
export function ExerciseView({ exercise }: { exercise: Exercise }) {
  const solved = progress.value.solved[exercise.id] === true;
  return (
    <section class="exercise" aria-label={`Exercise ${exercise.id}`}>
      <h3>
        Exercise {exercise.id}. {exercise.title} {solved && <span class="solved">solved</span>}
      </h3>
      <p>{exercise.task}</p>
      {(exercise.kind === 'code' || exercise.kind === 'loop' || exercise.kind === 'kernel') && (
        <Code exercise={exercise} />
      )}
      {exercise.kind === 'ticks' && <Ticks exercise={exercise} />}
      {exercise.kind === 'choice' && <Choice exercise={exercise} />}
      {exercise.kind === 'match' && <Match exercise={exercise} />}
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

/**
 * An exercise with code: a function that runs in a sandbox, a program for the GPU, or a training loop that runs in a worker until its end
 * or Stop.
 */
function Code({ exercise }: { exercise: CodeExercise | LoopExercise | KernelExercise }) {
  const { result, mistakes, show } = useChecks(exercise);
  const code = useSignal(exercise.start);
  const [running, setRunning] = useState<AbortController | undefined>(undefined);
  const [progressed, setProgressed] = useState('');
  const run = async () => {
    if (running) return;
    const stop = new AbortController();
    setRunning(stop);
    if (exercise.kind === 'loop') setProgressed('Opening the model...');
    const onStep = ({ step }: { step: number }) =>
      setProgressed(`Step ${step}${exercise.kind === 'loop' ? ` of ${exercise.steps}` : ''}.`);
    try {
      const checked =
        exercise.kind === 'code'
          ? await checkCode(exercise, code.peek())
          : exercise.kind === 'kernel'
            ? await checkKernel(exercise, code.peek())
            : await checkLoop(exercise, code.peek(), { onStep, signal: stop.signal });
      if (checked) show(checked);
    } catch (error) {
      show({ ok: false, says: `The check did not run: ${describe(error)}` });
    } finally {
      setRunning(undefined);
      setProgressed('');
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
        <button type="button" class="primary" aria-disabled={running !== undefined} onClick={() => void run()}>
          {running ? 'Running...' : 'Run'}
        </button>
        {exercise.kind === 'loop' && running && (
          <button type="button" onClick={() => running.abort()}>
            Stop
          </button>
        )}
        <button type="button" onClick={() => (code.value = exercise.start)}>
          Reset
        </button>
        <span class="note" role="status">
          {progressed || 'or Ctrl+Enter. Tab leaves the editor.'}
        </span>
      </div>
      <Said exercise={exercise} result={result} mistakes={mistakes} onAnswer={() => (code.value = exercise.answer)} />
    </div>
  );
}

/**
 * A plain text field at first. The editor with colours is loaded when the field comes near the screen, unless the reader writes already.
 */
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
          rows={Math.max(9, (code.value ?? '').split('\n').length)}
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
      <button type="button" class="primary" onClick={() => show(check(exercise, [...ticked]))}>
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

function Choice({ exercise }: { exercise: ChoiceExercise }) {
  const { result, mistakes, show } = useChecks(exercise);
  const [chosen, choose] = useState('');
  const name = useOwnId();
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        show(chosen === '' ? { ok: false, says: 'Choose a sentence first.' } : check(exercise, chosen));
      }}
    >
      <fieldset aria-label="Sentences">
        {exercise.options.map(({ id, label }) => (
          <label key={id} class="choice">
            <input type="radio" name={name} checked={chosen === id} onChange={() => choose(id)} />
            {label}
          </label>
        ))}
      </fieldset>
      <button type="submit" class="primary">
        Check
      </button>
      <Said exercise={exercise} result={result} mistakes={mistakes} onAnswer={() => choose(exercise.answer)} />
    </form>
  );
}

function Match({ exercise }: { exercise: MatchExercise }) {
  const { result, mistakes, show } = useChecks(exercise);
  const [chosen, choose] = useState<readonly string[]>(exercise.items.map(() => ''));
  const id = useOwnId();
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        show(
          chosen.includes('')
            ? { ok: false, says: 'One of them has no choice yet. Choose for each.' }
            : check(exercise, [...chosen]),
        );
      }}
    >
      <div class="fields">
        {exercise.items.map((item, k) => (
          <div class="field" key={item}>
            <label for={`${id}-${k}`}>{item}</label>
            <select
              id={`${id}-${k}`}
              value={chosen[k]}
              onChange={(event) => choose(chosen.map((one, i) => (i === k ? event.currentTarget.value : one)))}
            >
              <option value="">choose</option>
              {exercise.options.map((option) => (
                <option key={option.id} value={option.id}>
                  {option.label}
                </option>
              ))}
            </select>
          </div>
        ))}
      </div>
      <button type="submit" class="primary">
        Check
      </button>
      <Said exercise={exercise} result={result} mistakes={mistakes} onAnswer={() => choose(exercise.answer)} />
    </form>
  );
}
