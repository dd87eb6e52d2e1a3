/** A line for a model that comes from another server: which file, how much of it, and a bar. */

import type { DownloadProgress } from '../src/model/checkpoint/download.ts';
import { el, setText } from '../src/report/page/dom.ts';

export class DownloadLine {
  readonly #parent: HTMLElement;
  readonly #text = el('span', 'download-text');
  readonly #bar = el('progress');

  constructor(parent: HTMLElement) {
    this.#parent = parent;
    this.#bar.setAttribute('aria-label', 'Model download');
    parent.append(this.#text, this.#bar);
  }

  show({ file, received, total }: DownloadProgress): void {
    this.#parent.hidden = false;
    setText(this.#text, `${file}: ${mib(received)}${total === undefined ? '' : ` of ${mib(total)}`} MiB`);
    // Without a value the bar says that something goes on.
    if (total === undefined) this.#bar.removeAttribute('value');
    else this.#bar.value = total > 0 ? received / total : 1;
  }

  hide(): void {
    this.#parent.hidden = true;
  }
}

const mib = (bytes: number): string => (bytes / 2 ** 20).toFixed(1);
