/** The buttons Start, Pause, Stop and Save. */

import type { ComponentChildren } from 'preact';
import { pauseOrResume, saveMetrics, stop } from '../actions/controller.ts';
import { evaluation, history } from '../state/page.ts';
import { form, formIsReady } from '../state/settings/settings.ts';
import { active, stage, state } from '../state/stage.ts';

interface Action {
  id?: string;
  class?: string;
  title?: string;
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

/** The run's buttons. */
export function Buttons() {
  const now = state.value;
  const isForking = stage.value.name === 'forking';
  return (
    <>
      <Action
        id="start"
        type="submit"
        form="settings"
        class="primary"
        off={active.value || now === 'no-gpu' || !formIsReady.value || 'problem' in form.checked.value}
      >
        {isForking ? 'Start the fork' : now === 'done' || now === 'failed' ? 'Start again' : 'Start'}
      </Action>
      <Action off={!['running', 'pausing', 'paused'].includes(now)} onClick={pauseOrResume}>
        {now === 'paused' || now === 'pausing' ? 'Resume' : 'Pause'}
      </Action>
      <Action off={!active.value} onClick={stop}>
        {now !== 'stopping' ? 'Stop' : evaluation.value?.canSkip ? 'Skip evaluation' : 'Stop now'}
      </Action>
      <Action
        title="Downloads metrics.jsonl, in the command line's format"
        off={history.value.length === 0}
        onClick={saveMetrics}
      >
        Save metrics
      </Action>
    </>
  );
}
