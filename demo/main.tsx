/** Entry point of the page: mounts each view, then lets the controller open it. Views that are not needed immediately are loaded later. */

import { effect } from '@preact/signals';
import { render, type ComponentChild, type ComponentType } from 'preact';
import { byId, el } from '../src/ui/dom.ts';
import { findAdapter } from './engine/adapter.ts';
import { followSettings } from './actions/addressBar.ts';
import { fail, open, openForm, start } from './actions/controller.ts';
import { adapter } from './state/notices.ts';
import { history } from './state/page.ts';
import { shareDone } from './state/progress.ts';
import { form } from './state/settings/settings.ts';
import { type AskedRoom, narrowConnections, takeRoom } from './state/address/room.ts';
import { marks, others } from './state/runs.ts';
import { watchSpeed } from './state/estimate.ts';
import { About } from './views/about.tsx';
import { Announcer } from './views/announcer.tsx';
import { Buttons } from './views/buttons.tsx';
import { Cards } from './views/cards/cards.tsx';
import { Charts } from './views/charts/charts.ts';
import { Download } from './views/download.tsx';
import { Adapter, Notices } from './views/notices.tsx';
import { SettingsForm } from './views/settings/form.tsx';
import { Status } from './views/status.tsx';
import { Tries } from './views/tries/tries.tsx';
import { active, stage, state } from './state/stage.ts';

/** Replaces the content of an element by a view. */
function show(view: ComponentChild, id: string): void {
  const place = byId(id);
  place.replaceChildren();
  render(view, place);
}

interface Panel {
  id: string;
  /** Name of the panel for a screen reader. */
  label: string;
  /** Loads the view. The page does not wait for it. */
  load: () => Promise<ComponentType>;
}

/** Panels below the tries and the curves, in their order. */
const PANELS: readonly Panel[] = [
  { id: 'timeline', label: 'Steps', load: async () => (await import('./views/steps/timeline.tsx')).Timeline },
  { id: 'ask', label: 'Ask the model', load: async () => (await import('./views/ask/panel.tsx')).AskPanel },
  { id: 'rules', label: 'Rules', load: async () => (await import('./views/rules/rules.tsx')).Rules },
  { id: 'runs', label: 'Runs', load: async () => (await import('./views/runs/runs.tsx')).Runs },
  { id: 'learning', label: 'What a step learns from', load: async () => (await import('./views/steps/loss.tsx')).Loss },
  { id: 'time', label: 'Where the time goes', load: async () => (await import('./views/steps/timeBar.tsx')).TimeBar },
];

/** Adds an empty section, which takes no space until its view is loaded. */
function addPanel({ id, label }: Panel): void {
  const section = el('section', 'panel');
  [section.id, section.ariaLabel] = [id, label];
  document.querySelector('main')!.append(section);
}

function openPage(): void {
  const charts = new Charts(byId('charts'));
  effect(() => charts.show(history.value, others.value, marks.value));
  effect(() => void (document.body.dataset['state'] = state.value));
  effect(() => void (document.body.dataset['stage'] = stage.value.name));
  effect(
    () => void (document.title = active.value ? `${Math.floor(100 * shareDone.value)}% \u00b7 webgrpo` : 'webgrpo'),
  );
  // The visitor must see why Start is disabled, and the settings of a fork.
  effect(() => {
    const isWrong = form.own.value && !form.wantsModel.value && 'problem' in form.checked.value;
    if (isWrong || stage.value.name === 'forking') byId('settings-fold').setAttribute('open', '');
  });

  show(<Cards />, 'cards');
  show(<SettingsForm />, 'settings');
  show(<Buttons />, 'buttons');
  show(<Download />, 'download');
  show(<Status />, 'status');
  show(<About />, 'about');
  show(<Announcer />, 'announcer');
  show(<Tries />, 'rollouts');
  PANELS.forEach(addPanel);

  byId('settings').addEventListener('submit', (event) => {
    event.preventDefault();
    void start();
  });
  watchSpeed();
  followSettings();
  void openRest().catch(fail);
}

/** Loads the rest once Start can be pressed: the code that trains, the views below, and the automatic actions of the page. */
async function openRest(): Promise<void> {
  await open(await openForm().finally(showLowerViews));
}

function showLowerViews(): void {
  for (const { id, load } of PANELS) void load().then((View) => show(<View />, id));
  void import('./views/share/share.tsx').then(({ Share, Told }) => {
    show(<Share />, 'share');
    show(<Told />, 'told');
  });
  void import('./views/result/result.tsx').then(({ Result }) => show(<Result />, 'result'));
}

/** Turns the page into a worker of a room, without any other view. */
async function openRoom(asked: AskedRoom): Promise<void> {
  document.body.dataset['room'] = '';
  const { RoomPanel } = await import('./views/room/panel.tsx');
  show(<RoomPanel asked={asked} />, 'room');
  adapter.value = await findAdapter();
}

const asked = takeRoom();
narrowConnections(asked);
show(<Adapter />, 'adapter-place');
show(<Notices />, 'notices');
if (asked) void openRoom(asked).catch(fail);
else openPage();
