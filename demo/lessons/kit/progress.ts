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

export const progress = signal<Progress>(read() ?? NONE);

// Another page of the lessons can have stored or forgotten entries meanwhile. A page that the browser suspended is not told.
const readAgain = () => void (progress.value = read() ?? progress.value);
addEventListener('storage', readAgain);
addEventListener('pageshow', ({ persisted }) => persisted && readAgain());

/** Stores an entry next to those that other pages stored. */
export function keep<K extends keyof Progress>(part: K, id: string, value: Progress[K][string]): void {
  const all = joined(progress.value, read() ?? NONE);
  progress.value = { ...all, [part]: { ...all[part], [id]: value } };
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

const joined = (own: Progress, others: Progress): Progress => ({
  predicted: { ...own.predicted, ...others.predicted },
  solved: { ...own.solved, ...others.solved },
  seconds: { ...own.seconds, ...others.seconds },
  answers: { ...own.answers, ...others.answers },
});

/** Returns what is stored; undefined without storage. */
function read(): Progress | undefined {
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
    return undefined;
  }
}
