/**
 * Entry point of the page: mounts each view, then calls the controller's `open`. Views that are not needed immediately are loaded later.
 */

import { effect } from '@preact/signals';
import { render, type ComponentChild, type ComponentType } from 'preact';
import { byId, el } from '../src/ui/dom.ts';
import { findAdapter } from './engine/adapter.ts';
import { followSettings } from './actions/addressBar.ts';
import { fail, open, openForm, start } from './actions/controller.ts';
import { watchParts } from './state/missingParts.ts';
import { adapter } from './state/notices.ts';
import { closeDrawer, drawer, inDrawer } from './state/drawer.ts';
import { history } from './state/page.ts';
import { shareDone } from './state/progress.ts';
import { form } from './state/settings/settings.ts';
import { type AskedRoom, narrowConnections, takeRoom } from './state/address/room.ts';
import { along, marks, others, shownName, watchRuns } from './state/runs.ts';
import { address } from './state/address/visit.ts';
import { About } from './views/about.tsx';
import { Buttons } from './views/buttons.tsx';
import { Cards } from './views/cards/cards.tsx';
import { TaskChip } from './views/cards/taskChip.tsx';
import { DrawerButtons, DrawerFoot, DrawerHead } from './views/drawer.tsx';
import { Charts } from './views/charts/charts.ts';
import { Headline } from './views/headline.tsx';
import { Adapter, Notices } from './views/notices.tsx';
import { SettingsForm } from './views/settings/form.tsx';
import { Status } from './views/status.tsx';
import { Tries } from './views/tries/tries.tsx';
import { active, shared, stage, state } from './state/stage.ts';

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

/** Panels below the two columns, in their order. */
const PANELS: readonly Panel[] = [
  { id: 'rules', label: 'Rules', load: async () => (await import('./views/rules/rules.tsx')).Rules },
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
  const charts = new Charts(byId('charts'), byId('more-charts'));
  effect(() => charts.show(history.value, others.value, marks.value, shownName.value, along.value));
  effect(() => void (document.body.dataset['state'] = state.value));
  effect(() => void (document.body.dataset['stage'] = stage.value.name));
  effect(() => void document.body.toggleAttribute('data-shared', shared.value !== undefined));
  effect(
    () => void (document.title = active.value ? `${Math.floor(100 * shareDone.value)}% \u00b7 webgrpo` : 'webgrpo'),
  );
  // The visitor must see why Start is disabled.
  effect(() => {
    const isWrong = form.own.value && !form.wantsModel.value && 'problem' in form.checked.value;
    if (isWrong) drawer.value = 'settings';
  });
  const aside = byId('drawer');
  effect(() => {
    const shows = inDrawer.value;
    document.body.toggleAttribute('data-drawer', shows !== undefined);
    aside.dataset['shows'] = shows ?? '';
  });
  aside.addEventListener('keydown', ({ key }) => key === 'Escape' && closeDrawer());
  // Stop disappears when the run ends, and must not take the focus with it.
  effect(() => {
    if (!active.value && document.activeElement?.id === 'stop') byId('start').focus();
  });

  show(<Cards />, 'cards');
  show(<SettingsForm />, 'settings');
  show(<Buttons />, 'buttons');
  show(<TaskChip />, 'task');
  show(<DrawerButtons />, 'drawer-buttons');
  show(<DrawerHead />, 'drawer-head');
  show(<DrawerFoot />, 'drawer-foot');
  show(<Status />, 'status');
  show(<About />, 'about');
  show(<Tries />, 'rollouts');
  show(<Headline />, 'headline');
  PANELS.forEach(addPanel);

  byId('settings').addEventListener('submit', (event) => {
    event.preventDefault();
    void start();
  });
  const lesson = address.get('lesson');
  if (lesson !== null)
    void Promise.all([import('./state/lesson.ts'), import('./views/lesson/lesson.tsx')]).then(
      ([{ beginLesson }, { Lesson }]) => {
        beginLesson(lesson);
        show(<Lesson />, 'lesson');
      },
    );
  followSettings();
  void openRest().catch(fail);
}

/**
 * Loads the rest of the page as soon as Start can be pressed: the code that trains, the views below, the saved runs, and the automatic
 * actions of the page.
 */
async function openRest(): Promise<void> {
  let isFree = false;
  try {
    isFree = await openForm();
  } finally {
    await new Promise((isShown) => setTimeout(isShown)); // Start, before the requests for all the rest
    showLowerViews();
  }
  await open(isFree);
}

function showLowerViews(): void {
  watchRuns();
  for (const { id, load } of PANELS) void load().then((View) => show(<View />, id));
  void import('./views/announcer.tsx').then(({ Announcer }) => show(<Announcer />, 'announcer'));
  void import('./views/download.tsx').then(({ Download }) => show(<Download />, 'download'));
  void import('./views/ask/panel.tsx').then(({ AskPanel }) => show(<AskPanel />, 'ask'));
  void import('./views/steps/timeline.tsx').then(({ Timeline }) => show(<Timeline />, 'timeline'));
  void import('./views/rules/breakIt.tsx').then(({ BreakIt }) => show(<BreakIt />, 'break'));
  void import('./views/runs/runs.tsx').then(({ Runs }) => show(<Runs />, 'runs'));
  void import('./views/share/share.tsx').then(({ Share, Told, Watch }) => {
    show(<Share />, 'share');
    show(<Watch />, 'watch');
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

watchParts();
const asked = takeRoom();
narrowConnections(asked);
show(<Adapter />, 'adapter-place');
show(<Notices />, 'notices');
if (asked) void openRoom(asked).catch(fail);
else openPage();
