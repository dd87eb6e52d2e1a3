/** The button that opens the editor. The editor is loaded when it is opened. */

import { signal } from '@preact/signals';
import type { ComponentType } from 'preact';
import { changes } from '../../state/rules.ts';
import './rules.css';

const open = signal(false);
const Panel = signal<ComponentType | undefined>(undefined);
const problem = signal<string | undefined>(undefined);

/** Opens the editor and brings it into view. */
export function openEditor(): void {
  if (!open.value) toggle();
  document.getElementById('rules')?.scrollIntoView();
}

function toggle(): void {
  open.value = !open.value;
  if (!open.value || Panel.value) return;
  problem.value = undefined;
  const loading = import('./panel.tsx'); // Vite would take a handler that is chained to it into its own watch
  loading.then(
    (loaded) => void (Panel.value = loaded.Panel),
    () => void (problem.value = 'The editor could not be loaded. Reload the page.'),
  );
}

/** The button that opens the editor of rules, and the editor itself once opened. */
export function Rules() {
  return (
    <div class="rules">
      <h2>
        <button type="button" class="opener" aria-expanded={open.value} aria-controls="rules-panel" onClick={toggle}>
          Change reward, loss or tools during the run
        </button>
      </h2>
      <p class="note">
        Changes to reward, loss, tools and settings take effect at the next step. pass@1 is always computed with the
        task's own reward.
      </p>
      <div id="rules-panel" hidden={!open.value}>
        {open.value &&
          (Panel.value ? <Panel.value /> : <p role="status">{problem.value ?? 'Loading the editor...'}</p>)}
      </div>
      {changes.value.length > 0 && <WhatChanged />}
    </div>
  );
}

function WhatChanged() {
  return (
    <>
      <h3 id="rules-changed">Changes</h3>
      <ol class="changed" aria-labelledby="rules-changed">
        {changes.value.map(({ step, text }) => (
          <li key={`${step} ${text}`}>
            <b>Step {step}</b> {text}
          </li>
        ))}
      </ol>
    </>
  );
}
