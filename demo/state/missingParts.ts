/**
 * Watches for parts of the page that cannot be loaded when they are first used, because its server has another version of the page by then,
 * or does not answer. The page and its lessons show one notice for all parts.
 */

import { signal } from '@preact/signals';

/** How browsers word a script that could not be loaded, and Vite a style sheet. */
const WORDS = /dynamically imported module|importing a module script failed|unable to preload css/i;

/** The finding and what to do; undefined = every part could be loaded. */
export const missing = signal<{ title: string; text: string } | undefined>(undefined);

const UPDATED = {
  title: 'This page was updated.',
  text: 'The version that is open here is no longer on its server. Reload the page to continue.',
};
const INCOMPLETE = {
  title: 'A part of this page is missing.',
  text: 'Its server does not send it, perhaps because the page is being updated. Reload the page to continue.',
};
const NO_ANSWER = {
  title: 'The server of this page does not answer.',
  text: 'A part of the page could not be loaded. Check the connection, then reload the page.',
};

/** Shows the notice if an error is about a part of the page. Returns false for any other error. */
export function noteMissing(error: unknown): boolean {
  const { name, message } = error instanceof Error ? error : new Error(String(error));
  if (name !== 'MissingPartError' && !WORDS.test(message)) return false;
  void reason().then((found) => (missing.value = found));
  return true;
}

/** Asks the server for the page: another version has another script. */
async function reason(): Promise<typeof UPDATED> {
  try {
    const answer = await fetch(location.href, { cache: 'no-store' });
    const script = document.querySelector('script[type="module"][src]')?.getAttribute('src');
    if (!answer.ok || !script) return INCOMPLETE;
    return (await answer.text()).includes(script) ? INCOMPLETE : UPDATED;
  } catch {
    return NO_ANSWER;
  }
}

/** Notes every part that fails to load from now on. */
export function watchParts(): void {
  addEventListener('vite:preloadError', (event) => noteMissing((event as Event & { payload: unknown }).payload));
  addEventListener('unhandledrejection', (event) => {
    if (noteMissing(event.reason)) event.preventDefault();
  });
}
