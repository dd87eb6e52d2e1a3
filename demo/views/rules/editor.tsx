/** CodeMirror as a component. It owns its text while a user types. Tab moves the focus on, as in every field. */

import { type ReadonlySignal, useSignalEffect } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { Standing } from '../../state/rules.ts';
import { type CodeView, createCodeView } from './codeMirror.ts';

interface EditorProps {
  label: string;
  /** Replaces the text when it changes to another one. `onChange` must write its argument into it. */
  code: ReadonlySignal<string>;
  /** The error to mark at its line. */
  problem: Standing | undefined;
  /** Called when a user changes the text. */
  onChange: (code: string) => void;
}

/** The code editor of a rule. */
export function Editor({ label, code, problem, onChange }: EditorProps) {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<CodeView | undefined>(undefined);
  const heard = useRef(onChange);
  heard.current = onChange;
  useEffect(() => {
    const options = { label, code: code.peek(), onChange: (to: string) => heard.current(to) };
    view.current = createCodeView(place.current!, options);
    return () => view.current?.destroy();
  }, []);
  // Effects run late, so read the newest text here: a text from a render can be older than a keystroke.
  useSignalEffect(() => view.current?.setCode(code.value));
  useEffect(() => view.current?.mark(problem), [problem]);
  return <div class="code" ref={place} />;
}
