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
  /** Replaces the text without calling `onChange`. Undo restores the previous text. */
  setCode(code: string): void;
  mark(problem: Standing | undefined): void;
  destroy(): void;
}

/** Creates an editor in an element. */
export function createCodeView(parent: HTMLElement, { label, code, onChange }: CodeViewOptions): CodeView {
  const view = new EditorView({ parent, state: codeState({ label, code, onChange }) });
  adoptStyle();
  return {
    setCode: (to) => view.dispatch(replacement(view.state, to)),
    mark: (problem) => view.dispatch(setDiagnostics(view.state, problem ? diagnosticsOf(view, problem) : [])),
    destroy: () => view.destroy(),
  };
}

let adopted: CSSStyleSheet | undefined;

/** Adopts the text of the editor's style element if a host's policy (style-src) forbids the element. Policies allow a script's rules. */
function adoptStyle(): void {
  const forbidden = [...document.head.querySelectorAll('style')].find(({ sheet }) => !sheet);
  if (!forbidden || adopted) return;
  const sheet = (adopted = new CSSStyleSheet());
  const update = () => void sheet.replaceSync(forbidden.textContent);
  update();
  new MutationObserver(update).observe(forbidden, { childList: true }); // extensions add rules later
  document.adoptedStyleSheets.push(sheet);
}

/**
 * Marks a change that the page makes, not the user. Such a change does not call `onChange`, because an older text would overwrite newer
 * typing.
 */
const byPage = Annotation.define<true>();

/** Returns the initial state of the editor's view: its style, and a listener for the user's changes. */
export function codeState({ label, code, onChange }: CodeViewOptions): EditorState {
  const heard = EditorView.updateListener.of(({ transactions, state }) => {
    if (transactions.some((one) => one.docChanged && !one.annotation(byPage))) onChange(state.doc.toString());
  });
  // The scrolling element gets a tabindex: axe does not accept an editable element as a way to scroll by keyboard.
  const named = EditorView.contentAttributes.of({ 'aria-label': label, 'aria-multiline': 'true', tabindex: '0' });
  return EditorState.create({ doc: code, extensions: [look, named, heard] });
}

/** Returns the change that replaces the editor's text by `to`; no change if the two are equal. */
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
  // No binding for Tab, so that Tab moves the focus out of the editor.
  keymap.of([...defaultKeymap, ...historyKeymap]),
  EditorView.lineWrapping,
];

function diagnosticsOf({ state: { doc } }: EditorView, { state, text, line, column = 1 }: Standing) {
  if (state !== 'refused' || line === undefined || line > doc.lines) return [];
  const at = doc.line(line);
  const from = Math.min(at.from + column - 1, Math.max(at.from, at.to - 1));
  return [{ from, to: at.to, severity: 'error', message: text } as const];
}
