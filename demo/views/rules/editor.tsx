/**
 * CodeMirror as a component. The component owns its text while a user types. Tab moves the focus to the next element, as in other fields.
 */

import { type ReadonlySignal, useSignalEffect } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { Standing } from '../../state/rules.ts';
import { type CodeView, createCodeView } from './codeMirror.ts';

interface EditorProps {
  label: string;
  /** Text of the editor. A new value replaces what the editor shows. `onChange` must write the user's text into this signal. */
  code: ReadonlySignal<string>;
  /** The error to mark in the editor, at its line. */
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
  // Effects run late, so read the signal's newest text here. The text of the last render can be older than a keystroke.
  useSignalEffect(() => view.current?.setCode(code.value));
  useEffect(() => view.current?.mark(problem), [problem]);
  return <div class="code" ref={place} />;
}
