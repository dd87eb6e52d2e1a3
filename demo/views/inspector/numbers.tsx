/** All numbers of one token, with buttons to the next and the previous token. */

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
          aria-label="Previous token"
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
        <p class="note">Written by a tool or the chat template. The model reads it but is not trained on it.</p>
      )}
      {token.drawn && !token.trained && <p class="note">{whyUntrained(token)}</p>}
    </>
  );
}

function rowsOf(token: TokenView, place: number, count: number): [string, string][] {
  const rows: [string, string][] = [
    ['Position', `${place + 1} of ${count}`],
    ['Token', String(token.id)],
  ];
  if (!token.drawn) return rows;
  rows.push(['Probability at sampling', valueText('probability', token)]);
  rows.push(['Advantage', valueText('advantage', token)]);
  if (token.trained) {
    rows.push(['Ratio', valueText('ratio', token)], ['Clip', valueText('clip', token)]);
    rows.push(['Gradient', valueText('gradient', token)], ['Entropy', `${short(token.entropy!)} nats`]);
  }
  if (token.version !== undefined)
    rows.push(['Sampled with weights of', token.version === 0 ? 'the start' : `step ${token.version}`]);
  return rows;
}

const whyUntrained = ({ advantage }: TokenView) =>
  advantage === 0
    ? 'Advantage 0: no gradient. The update skipped this token, so it has no ratio, clip or entropy.'
    : 'The update did not include this token.';
