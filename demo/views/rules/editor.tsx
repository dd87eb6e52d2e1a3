/** CodeMirror as a component. Its text is the caller's; Tab leaves it, as it leaves every field. */

import { useEffect, useRef } from 'preact/hooks';
import type { Standing } from '../../app/rules.ts';
import { type CodeView, createCodeView } from './codeMirror.ts';

interface EditorProps {
  label: string;
  code: string;
  /** Marked at its line. */
  problem: Standing | undefined;
  onChange: (code: string) => void;
}

export function Editor({ label, code, problem, onChange }: EditorProps) {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<CodeView | undefined>(undefined);
  const heard = useRef(onChange);
  heard.current = onChange;
  useEffect(() => {
    view.current = createCodeView(place.current!, { label, code, onChange: (to) => heard.current(to) });
    return () => view.current?.destroy();
  }, []);
  useEffect(() => view.current?.setCode(code), [code]);
  useEffect(() => view.current?.mark(problem), [problem]);
  return <div class="code" ref={place} />;
}
