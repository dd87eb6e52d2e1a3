/** An editor for JavaScript: lines numbered, words coloured, one mark at the line that is to blame, undo. */

import { defaultKeymap, history, historyKeymap } from '@codemirror/commands';
import { javascript } from '@codemirror/lang-javascript';
import { bracketMatching, indentUnit, syntaxHighlighting } from '@codemirror/language';
import { lintGutter, setDiagnostics } from '@codemirror/lint';
import { Annotation, EditorState, type Extension, type TransactionSpec } from '@codemirror/state';
import { EditorView, keymap, lineNumbers } from '@codemirror/view';
import { classHighlighter } from '@lezer/highlight';
import type { Standing } from '../../state/rules.ts';

interface CodeViewOptions {
  label: string;
  code: string;
  onChange(code: string): void;
}

export interface CodeView {
  /** Replaces the text without a call of `onChange`; undo brings the old one back. */
  setCode(code: string): void;
  mark(problem: Standing | undefined): void;
  destroy(): void;
}

export function createCodeView(parent: HTMLElement, { label, code, onChange }: CodeViewOptions): CodeView {
  const view = new EditorView({ parent, state: codeState({ label, code, onChange }) });
  return {
    setCode: (to) => view.dispatch(replacement(view.state, to)),
    mark: (problem) => view.dispatch(setDiagnostics(view.state, problem ? diagnosticsOf(view, problem) : [])),
    destroy: () => view.destroy(),
  };
}

/** Marks a change by the page, of which `onChange` is not called: it would write an old text over newer typing. */
const byPage = Annotation.define<true>();

/** Start of the view: its look, and a listener for what a user changes. */
export function codeState({ label, code, onChange }: CodeViewOptions): EditorState {
  const heard = EditorView.updateListener.of(({ transactions, state }) => {
    if (transactions.some((one) => one.docChanged && !one.annotation(byPage))) onChange(state.doc.toString());
  });
  const named = EditorView.contentAttributes.of({ 'aria-label': label, 'aria-multiline': 'true' });
  return EditorState.create({ doc: code, extensions: [look, named, heard] });
}

/** Puts `to` in place of the text; changes nothing if it is the text already. */
export function replacement(state: EditorState, to: string): TransactionSpec {
  if (state.doc.toString() === to) return {};
  const changes = { from: 0, to: state.doc.length, insert: to };
  return { changes, userEvent: 'input.replace', annotations: byPage.of(true) };
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
