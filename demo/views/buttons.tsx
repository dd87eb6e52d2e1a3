/** The buttons Start, Pause and Stop. */

import type { ComponentChildren } from 'preact';
import { pauseOrResume, stop } from '../actions/controller.ts';
import { evaluation } from '../state/page.ts';
import { form, formIsReady } from '../state/settings/settings.ts';
import { active, stage, state } from '../state/stage.ts';

interface Action {
  id?: string;
  class?: string;
  type?: 'submit';
  form?: string;
  off: boolean;
  onClick?: () => void;
  children: ComponentChildren;
}

/** A button that keeps the focus when its action disables it. */
function Action({ off, onClick, ...rest }: Action) {
  return (
    <button type="button" aria-disabled={off} onClick={off ? (event) => event.preventDefault() : onClick} {...rest} />
  );
}

/**
 * The run's buttons, without those that would do nothing now. Start, Pause and Resume are the same element, which therefore keeps the
 * focus. A fork has its own button, in the drawer.
 */
export function Buttons() {
  const now = state.value;
  if (stage.value.name === 'forking') return null;
  return (
    <>
      {active.value ? (
        <Action key="main" id="start" off={!['running', 'pausing', 'paused'].includes(now)} onClick={pauseOrResume}>
          {now === 'paused' || now === 'pausing' ? 'Resume' : 'Pause'}
        </Action>
      ) : (
        <Action
          key="main"
          id="start"
          type="submit"
          form="settings"
          class="primary"
          off={now === 'no-gpu' || !formIsReady.value || 'problem' in form.checked.value}
        >
          {now === 'done' || now === 'failed' ? 'New run' : 'Start'}
        </Action>
      )}
      {active.value && (
        <Action id="stop" off={false} onClick={stop}>
          {now !== 'stopping' ? 'Stop' : evaluation.value?.canSkip ? 'Skip evaluation' : 'Stop now'}
        </Action>
      )}
    </>
  );
}
