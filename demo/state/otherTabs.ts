/** Checks whether another tab of the page trains too: both would share the GPU. Each tab that trains holds a Web Lock. */

import { effect, signal } from '@preact/signals';
import { active } from './stage.ts';

const LOCK = 'webgrpo trains in ';
/** Milliseconds between polls, because a tab that crashed sends nothing. */
const LOOK_AGAIN_MS = 3000;

/** Number of other tabs that train. */
export const otherTabs = signal(0);

// The random id of this tab is not from `crypto.randomUUID`, which only pages in secure contexts have.
const own = LOCK + crypto.getRandomValues(new Uint32Array(4)).join('-');
const news = new BroadcastChannel('webgrpo tabs');

async function look(): Promise<void> {
  const { held = [] } = await navigator.locks.query();
  otherTabs.value = held.filter(({ name = '' }) => name.startsWith(LOCK) && name !== own).length;
}

/** Polls until no other tab trains. */
function watch(): void {
  void look()
    .then(() => otherTabs.value > 0 && setTimeout(watch, LOOK_AGAIN_MS))
    .catch(() => {}); // a page without locks, as from file://
}

let letGo = () => {};
function hold(): void {
  const held = () => {
    news.postMessage('trains');
    return new Promise<void>((release) => (letGo = release));
  };
  navigator.locks
    .request(own, held)
    .then(() => news.postMessage('ended'))
    .catch(() => {});
}

news.addEventListener('message', watch);
watch();
effect(() => {
  if (active.value) hold();
  else letGo();
});
