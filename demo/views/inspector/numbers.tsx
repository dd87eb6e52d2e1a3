/** All numbers of one token, with buttons to the next and the previous one. */

import type { ReadonlySignal } from '@preact/signals';
import { short } from '../../../src/ui/format.ts';
import { type TokenView, valueText } from './measures.ts';

interface NumbersProps {
  tokens: readonly TokenView[];
  at: ReadonlySignal<number>;
  go: (to: number) => void;
}

/** Lists the numbers of the selected token. */
export function Numbers({ tokens, at, go }: NumbersProps) {
  const place = at.value;
  const token = tokens[place];
  return (
    <>
      <div class="token-head">
        <button
          type="button"
          class="step"
          aria-label="Token before"
          aria-disabled={place === 0}
          onClick={() => go(place - 1)}
        >
          {'\u2039'}
        </button>
        <code class="token-text">{JSON.stringify(token.text)}</code>
        <button
          type="button"
          class="step"
          aria-label="Next token"
          aria-disabled={place === tokens.length - 1}
          onClick={() => go(place + 1)}
        >
          {'\u203a'}
        </button>
      </div>
      <dl class="token-numbers">
        {rowsOf(token, place, tokens.length).map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {!token.drawn && (
        <p class="note">
          Not drawn by the model: a tool or the chat template wrote it. It is read, and not trained on.
        </p>
      )}
      {token.drawn && !token.trained && <p class="note">{whyUntrained(token)}</p>}
    </>
  );
}

function rowsOf(token: TokenView, place: number, count: number): [string, string][] {
  const rows: [string, string][] = [
    ['Place', `${place + 1} of ${count}`],
    ['Token', String(token.id)],
  ];
  if (!token.drawn) return rows;
  rows.push(['Probability when drawn', valueText('probability', token)]);
  rows.push(['Advantage', valueText('advantage', token)]);
  if (token.trained) {
    rows.push(['Ratio', valueText('ratio', token)], ['Clip', valueText('clip', token)]);
    rows.push(['Gradient', valueText('gradient', token)], ['Entropy', `${short(token.entropy!)} nats`]);
  }
  if (token.version !== undefined)
    rows.push(['Drawn by the weights', token.version === 0 ? 'of the start' : `after step ${token.version}`]);
  return rows;
}

const whyUntrained = ({ advantage }: TokenView) =>
  advantage === 0
    ? 'Its advantage is 0, so it has no gradient: the update skipped it, and there is no ratio, clip or entropy.'
    : 'The update has no numbers of it.';
