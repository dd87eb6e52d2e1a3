/** Notices above everything else: the adapter, how a run ended, what went wrong. */

import { NoGpuError, type FoundAdapter } from './adapter.ts';
import { byId, el, setText } from '../src/report/page/dom.ts';

interface Explained {
  title: string;
  text: string;
}

export class Notices {
  readonly #parent: HTMLElement;
  #message: HTMLElement | undefined;
  #software: HTMLElement | undefined;

  constructor(parent: HTMLElement) {
    this.#parent = parent;
  }

  adapter({ name, isSoftware }: FoundAdapter): void {
    setText(byId('adapter'), isSoftware ? `${name} (software)` : name);
    byId('adapter').dataset['software'] = String(isSoftware);
    this.#software?.remove();
    if (!isSoftware) return;
    const text = `${name} computes on the CPU: the numbers are right, but training takes minutes where a GPU takes seconds.`;
    this.#software = el('div', 'notice warning', el('b', '', 'Software adapter. '), text);
    this.#parent.prepend(this.#software);
  }

  info(text: string): void {
    this.#show(el('div', 'notice', text));
  }

  error({ title, text }: Explained): void {
    if (document.getElementById('adapter')?.dataset['software'] === undefined) setText(byId('adapter'), 'No GPU');
    this.#show(el('div', 'notice error', el('b', '', `${title} `), text));
  }

  clear(): void {
    this.#message?.remove();
  }

  #show(message: HTMLElement): void {
    this.clear();
    this.#message = message;
    this.#parent.append(message);
  }
}

/** An error as a person can act on it. The engine's errors cross from its worker with their names. */
export function explain(error: unknown): Explained {
  const { name, message } = error instanceof Error ? error : new Error(String(error));
  if (error instanceof NoGpuError) return { title: 'No WebGPU here.', text: message };
  if (name === 'InputError' || name === 'RangeError') return { title: 'This cannot run.', text: message };
  if (name === 'NoAdapterError') return { title: 'No GPU found.', text: message };
  if (name === 'OutOfMemoryError') return { title: 'Not enough GPU memory.', text: message };
  if (name === 'DeviceLostError' || /device (was |is )?lost/i.test(message))
    return { title: 'The GPU was lost.', text: `${message} Press "Start again" to ask for it anew.` };
  if (name === 'WorkerDiedError') return { title: 'The engine stopped.', text: `${message} Press "Start again".` };
  return { title: 'Something went wrong.', text: message };
}
