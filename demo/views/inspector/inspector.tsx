/** Every token of a try, coloured by one number at a time. The selected token shows all its numbers. */

import { useComputed, useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import type { LoggedRollout } from '../../../src/runs/rollouts.ts';
import type { TryTokens } from '../../training/tokens.ts';
import { Alternatives } from './alternatives.tsx';
import { legendOf, type Measure, MEASURES, NAMES, places, tokenViews, updateOfGroup, valueText } from './measures.ts';
import { Numbers } from './numbers.tsx';
import { Timeline } from './timeline.tsx';
import { Tokens } from './tokens.tsx';
import './inspector.css';

/** Shows the tokens of a try. */
export function Inspector({ tokens, shown }: { tokens: TryTokens; shown: LoggedRollout }) {
  const views = useMemo(() => tokenViews(tokens), [tokens]);
  const measure = useSignal<Measure>('probability');
  const selected = useSignal(
    Math.max(
      0,
      views.findIndex(({ drawn }) => drawn),
    ),
  );
  const hovered = useSignal<number | undefined>(undefined);
  const at = useComputed(() => Math.min(hovered.value ?? selected.value, views.length - 1));
  const go = (to: number) => (selected.value = Math.min(Math.max(to, 0), views.length - 1));
  if (views.length === 0) return <p class="empty">This try has no tokens.</p>;
  return (
    <div class="inspector">
      <fieldset class="measures">
        <legend class="heard">Colour by</legend>
        {MEASURES.map((name) => (
          <label key={name} class="measure">
            <input
              type="radio"
              name={`measure-${shown.step}-${shown.group}`}
              checked={measure.value === name}
              onChange={() => (measure.value = name)}
            />
            <span>{NAMES[name]}</span>
          </label>
        ))}
      </fieldset>
      <Scale measure={measure.value} legend={legendOf(measure.value, views)} />
      <p class="note">{updateOfGroup(tokens)}</p>
      <div class="inspected">
        <Tokens
          tokens={views}
          places={places(measure.value, views)}
          values={views.map((view) => valueText(measure.value, view))}
          name={NAMES[measure.value]}
          selected={selected}
          hovered={hovered}
        />
        <section class="facts" aria-label="Selected token">
          <Numbers tokens={views} at={at} go={go} />
          <Alternatives tokens={tokens} views={views} at={at} />
        </section>
      </div>
      <Timeline events={tokens.sample.events} />
    </div>
  );
}

function Scale({
  measure,
  legend: { means, low, middle, high },
}: {
  measure: Measure;
  legend: ReturnType<typeof legendOf>;
}) {
  return (
    <div class="scale">
      <p class="note">{means}</p>
      <p class="ends">
        <span class={middle === undefined ? '' : 'token down'}>{low}</span>
        <span class={`ramp${middle === undefined ? '' : ' two-sided'}`} data-measure={measure} aria-hidden="true" />
        {middle !== undefined && <span class="heard">{middle} in the middle</span>}
        <span class={middle === undefined ? '' : 'token up'}>{high}</span>
      </p>
    </div>
  );
}
