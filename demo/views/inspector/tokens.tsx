/**
 * The tokens of a try in order. Arrow keys, Home and End move from token to token. Pointing at a token previews its numbers, a click
 * selects the token.
 */

import type { Signal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { keyTarget } from '../tries/picker.tsx';
import { spoken, type TokenView } from './measures.ts';

interface TokensProps {
  tokens: readonly TokenView[];
  /** Position of each token on the colour scale. */
  places: readonly (number | undefined)[];
  values: readonly string[];
  /** Name of the measure. */
  name: string;
  selected: Signal<number>;
  hovered: Signal<number | undefined>;
}

const placeOf = (event: Event): number | undefined => {
  const token = (event.target as Element).closest<HTMLElement>('[data-at]');
  return token ? Number(token.dataset['at']) : undefined;
};

/** Shows the tokens of a try, each in the colour of its value. */
export function Tokens({ tokens, places, values, name, selected, hovered }: TokensProps) {
  const list = useRef<HTMLDivElement>(null);
  const select = (to: number) => (selected.value = to);
  const onKeyDown = (event: KeyboardEvent) => {
    const to = keyTarget(event.key, selected.value, tokens.length);
    if (to === undefined) return;
    event.preventDefault();
    [selected.value, hovered.value] = [to, undefined];
    list.current!.querySelector<HTMLElement>(`[data-at="${to}"]`)!.focus();
  };
  return (
    <div
      class="tokens"
      role="listbox"
      aria-label={`Tokens, coloured by ${name.toLowerCase()}`}
      aria-orientation="horizontal"
      ref={list}
      onKeyDown={onKeyDown}
      onClick={(event) => {
        const at = placeOf(event);
        if (at !== undefined) select(at);
      }}
      onPointerMove={(event) => {
        // If keys scroll the list, another token comes under a pointer that did not move. Ignore that.
        if (event.pointerType !== 'touch' && (event.movementX !== 0 || event.movementY !== 0))
          hovered.value = placeOf(event);
      }}
      onPointerLeave={() => (hovered.value = undefined)}
    >
      {tokens.map((token, at) => (
        <Token
          key={at}
          at={at}
          token={token}
          place={places[at]}
          label={`${spoken(token)}: ${name.toLowerCase()} ${values[at]}`}
          isSelected={selected.value === at}
        />
      ))}
    </div>
  );
}

interface TokenProps {
  at: number;
  token: TokenView;
  place: number | undefined;
  label: string;
  isSelected: boolean;
}

function Token({ at, token, place = 0, label, isSelected }: TokenProps) {
  const side = place > 0.02 ? ' up' : place < -0.02 ? ' down' : '';
  const held = token.clip ? ' held' : '';
  return (
    <span
      class={`token${side}${held}${token.drawn ? '' : ' said'}`}
      role="option"
      aria-selected={isSelected}
      aria-label={label}
      tabIndex={isSelected ? 0 : -1}
      data-at={at}
      style={{ '--strength': Math.abs(place).toFixed(2) }}
    >
      {visible(token.text)}
    </span>
  );
}

/** Makes a token's text visible: a line break gets a sign and breaks the line, and an incomplete character becomes a symbol. */
const visible = (text: string): string => (text === '' ? '\u25ab' : text.replaceAll('\n', '\u21b5\n'));
