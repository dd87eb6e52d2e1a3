/** The reader's predictions and solved exercises, stored only in this browser. */

import { signal } from '@preact/signals';

const KEY = 'webgrpo-lessons';

interface Progress {
  /** Chosen option, by id of the prediction; '' = the reader looked without a guess. */
  predicted: Readonly<Record<string, string>>;
  solved: Readonly<Record<string, boolean>>;
  /** Seconds of the last live work on this machine, by name of the work. */
  seconds: Readonly<Record<string, number>>;
  /** Chosen options of the six questions, by round and question. */
  answers: Readonly<Record<string, number>>;
}

const NONE: Progress = { predicted: {}, solved: {}, seconds: {}, answers: {} };

export const progress = signal<Progress>(read());

/** Stores an entry. */
export function keep<K extends keyof Progress>(part: K, id: string, value: Progress[K][string]): void {
  progress.value = { ...progress.value, [part]: { ...progress.value[part], [id]: value } };
  try {
    localStorage.setItem(KEY, JSON.stringify(progress.value));
  } catch {
    // Without storage, the browser forgets the progress when the page is closed.
  }
}

/** Forgets everything. */
export function forget(): void {
  progress.value = NONE;
  try {
    localStorage.removeItem(KEY);
  } catch {
    // Nothing was stored.
  }
}

function read(): Progress {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? '{}') as Partial<Progress> | null;
    const part = <T>(value: Readonly<Record<string, T>> | undefined, type: string) =>
      Object.fromEntries(Object.entries(value ?? {}).filter(([, one]) => typeof one === type));
    return {
      predicted: part(kept?.predicted, 'string'),
      solved: part(kept?.solved, 'boolean'),
      seconds: part(kept?.seconds, 'number'),
      answers: part(kept?.answers, 'number'),
    };
  } catch {
    return NONE;
  }
}
