/** The drawer at the right: its head, the button that starts a fork, and the buttons in the header that open it. */

import type { ComponentChildren } from 'preact';
import { start } from '../actions/controller.ts';
import { closeDrawer, drawer, inDrawer } from '../state/drawer.ts';
import { runs, titleOf } from '../state/runs.ts';
import { form } from '../state/settings/settings.ts';
import { stage } from '../state/stage.ts';
import './drawer.css';

/** The head of the drawer: a title for the shown content, and a button that closes the drawer. */
export function DrawerHead() {
  const now = stage.value;
  if (inDrawer.value === undefined) return null;
  return (
    <>
      <h2>
        {now.name === 'forking'
          ? `Fork from step ${now.step} of ${titleOf(now.of)}`
          : inDrawer.value === 'runs'
            ? 'Runs'
            : 'Settings'}
      </h2>
      <button type="button" onClick={closeDrawer}>
        {now.name === 'forking' ? 'Cancel' : 'Close'}
      </button>
    </>
  );
}

/** The foot of the drawer: a button that starts the fork with the settings above. */
export function DrawerFoot() {
  if (stage.value.name !== 'forking') return null;
  return (
    <>
      <button type="button" class="primary" disabled={'problem' in form.checked.value} onClick={() => void start()}>
        Start fork
      </button>
      <span class="note">A new run. The run it forks from is kept.</span>
    </>
  );
}

/** Buttons that open and close the drawer with the settings or with the saved runs. */
export function DrawerButtons() {
  const count = runs.value.length;
  return (
    <>
      <Opener opens="settings">Settings</Opener>
      <Opener opens="runs">{count > 0 ? `Runs (${count})` : 'Runs'}</Opener>
    </>
  );
}

function Opener({ opens, children }: { opens: 'settings' | 'runs'; children: ComponentChildren }) {
  const isOpen = drawer.value === opens;
  return (
    <button
      type="button"
      data-opens={opens}
      aria-expanded={isOpen}
      aria-controls="drawer"
      disabled={stage.value.name === 'forking'}
      onClick={() => void (drawer.value = isOpen ? undefined : opens)}
    >
      {children}
    </button>
  );
}
