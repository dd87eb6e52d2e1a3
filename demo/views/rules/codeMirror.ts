/** A JavaScript editor: numbered lines, colours, a mark at the line with the error, undo. */

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
  /** Replaces the text without calling `onChange`. Undo restores the old text. */
  setCode(code: string): void;
  mark(problem: Standing | undefined): void;
  destroy(): void;
}

/** Creates an editor in an element. */
export function createCodeView(parent: HTMLElement, { label, code, onChange }: CodeViewOptions): CodeView {
  const view = new EditorView({ parent, state: codeState({ label, code, onChange }) });
  return {
    setCode: (to) => view.dispatch(replacement(view.state, to)),
    mark: (problem) => view.dispatch(setDiagnostics(view.state, problem ? diagnosticsOf(view, problem) : [])),
    destroy: () => view.destroy(),
  };
}

/** Marks a change by the page. It does not call `onChange`, which would overwrite newer typing with an old text. */
const byPage = Annotation.define<true>();

/** Returns the initial state of the view: its look, and a listener for the user's changes. */
export function codeState({ label, code, onChange }: CodeViewOptions): EditorState {
  const heard = EditorView.updateListener.of(({ transactions, state }) => {
    if (transactions.some((one) => one.docChanged && !one.annotation(byPage))) onChange(state.doc.toString());
  });
  // With a tabindex, because axe does not count an editable element as a way to scroll by keyboard.
  const named = EditorView.contentAttributes.of({ 'aria-label': label, 'aria-multiline': 'true', tabindex: '0' });
  return EditorState.create({ doc: code, extensions: [look, named, heard] });
}

/** Returns the change that replaces the text by `to`; no change if they are equal. */
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
  // Without Tab, which moves the focus out of the editor.
  keymap.of([...defaultKeymap, ...historyKeymap]),
  EditorView.lineWrapping,
];

function diagnosticsOf({ state: { doc } }: EditorView, { state, text, line, column = 1 }: Standing) {
  if (state !== 'refused' || line === undefined || line > doc.lines) return [];
  const at = doc.line(line);
  const from = Math.min(at.from + column - 1, Math.max(at.from, at.to - 1));
  return [{ from, to: at.to, severity: 'error', message: text } as const];
}
