/** An editor for JavaScript: lines numbered, words coloured, one mark at the line that is to blame, undo. */

import { defaultKeymap, history, historyKeymap } from '@codemirror/commands';
import { javascript } from '@codemirror/lang-javascript';
import { bracketMatching, indentUnit, syntaxHighlighting } from '@codemirror/language';
import { lintGutter, setDiagnostics } from '@codemirror/lint';
import { type Extension } from '@codemirror/state';
import { EditorView, keymap, lineNumbers } from '@codemirror/view';
import { classHighlighter } from '@lezer/highlight';
import type { Standing } from '../../app/rules.ts';

interface CodeViewOptions {
  label: string;
  code: string;
  onChange(code: string): void;
}

export interface CodeView {
  /** Does nothing where that is the text already. */
  setCode(code: string): void;
  mark(problem: Standing | undefined): void;
  destroy(): void;
}

export function createCodeView(parent: HTMLElement, { label, code, onChange }: CodeViewOptions): CodeView {
  const heard = EditorView.updateListener.of(({ docChanged, state }) => {
    if (docChanged) onChange(state.doc.toString());
  });
  const named = EditorView.contentAttributes.of({ 'aria-label': label, 'aria-multiline': 'true' });
  const view = new EditorView({ parent, doc: code, extensions: [look, named, heard] });
  return {
    setCode(to) {
      if (view.state.doc.toString() === to) return;
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: to }, userEvent: 'input.replace' });
    },
    mark: (problem) => view.dispatch(setDiagnostics(view.state, problem ? diagnosticsOf(view, problem) : [])),
    destroy: () => view.destroy(),
  };
}

const look: Extension = [
  lineNumbers(),
  lintGutter(),
  javascript(),
  syntaxHighlighting(classHighlighter),
  bracketMatching(),
  indentUnit.of('  '),
  history(),
  // Without Tab, which leaves the editor.
  keymap.of([...defaultKeymap, ...historyKeymap]),
  EditorView.lineWrapping,
];

function diagnosticsOf({ state: { doc } }: EditorView, { state, text, line, column = 1 }: Standing) {
  if (state !== 'refused' || line === undefined || line > doc.lines) return [];
  const at = doc.line(line);
  const from = Math.min(at.from + column - 1, Math.max(at.from, at.to - 1));
  return [{ from, to: at.to, severity: 'error', message: text } as const];
}
