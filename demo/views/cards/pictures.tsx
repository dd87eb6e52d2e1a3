/** A small picture for each task, in the page's colours. */

import type { ComponentChildren } from 'preact';

function Picture({ children }: { children: ComponentChildren }) {
  return (
    <svg class="picture" viewBox="0 0 48 48" aria-hidden="true">
      {children}
    </svg>
  );
}

const keys = [14, 22, 30].flatMap((x) => [24, 31].map((y) => ({ x, y })));

export const PICTURES: Readonly<Record<string, () => ComponentChildren>> = {
  'gsm8k-tool': () => (
    <Picture>
      <rect class="ink" x="9" y="5" width="30" height="38" rx="4" />
      <rect class="fill" x="14" y="10" width="20" height="8" rx="1.5" />
      {keys.map(({ x, y }) => (
        <rect key={`${x} ${y}`} class="soft" x={x} y={y} width="4.5" height="4" rx="1" />
      ))}
    </Picture>
  ),
  'reverse-text': () => (
    <Picture>
      <text x="5" y="22" textLength="29" lengthAdjust="spacingAndGlyphs">
        abc
      </text>
      <text class="accent" x="5" y="43" textLength="29" lengthAdjust="spacingAndGlyphs">
        cba
      </text>
      <path class="ink" d="M38 13a9 9 0 0 1 0 22m0 0 4-4m-4 4 4 4" />
    </Picture>
  ),
  countdown: () => (
    <Picture>
      <circle class="ink" cx="24" cy="25" r="18" />
      <path class="soft" d="M24 25V9a16 16 0 0 1 16 16z" />
      <text class="accent" x="17" y="33">
        6
      </text>
    </Picture>
  ),
  'tic-tac-toe': () => (
    <Picture>
      <path class="ink" d="M18 6v36M30 6v36M6 18h36M6 30h36" />
      <path class="mark" d="m21 21 6 6m0-6-6 6m-14 7 6 6m0-6-6 6M33 9l6 6m0-6-6 6" />
      <circle class="ink" cx="12" cy="12" r="3.5" />
    </Picture>
  ),
  adventure: () => (
    <Picture>
      <path class="ink" d="M6 43V18L24 6l18 12v25zM24 43V18M6 30h18" />
      <rect class="fill" x="29" y="29" width="8" height="14" />
      <circle class="mark" cx="13" cy="37" r="2.5" />
      <path class="mark" d="M15.5 37H21v2" />
    </Picture>
  ),
  'search-qa': () => (
    <Picture>
      <path class="ink" d="M8 5h18l7 7v12M8 5v37h13" />
      <path class="ink" d="M13 16h13M13 23h9" />
      <circle class="mark" cx="30" cy="31" r="7" />
      <path class="mark" d="m35 36 7 7" />
    </Picture>
  ),
  'your-model': () => (
    <Picture>
      <path class="ink" d="M13 33a8 8 0 0 1 0-16 12 12 0 0 1 23-1 8.5 8.5 0 0 1 0 17" />
      <path class="mark" d="M24 23v19m0 0-6-6m6 6 6-6" />
    </Picture>
  ),
};
