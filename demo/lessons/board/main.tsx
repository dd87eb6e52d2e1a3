/** Entry point of the class board. */

import { signal } from '@preact/signals';
import { render } from 'preact';
import { move, movedTo } from '../kit/address.ts';
import { Select, useOwnId } from '../kit/figure.tsx';
import { boardPlot } from '../kit/plot.ts';
import { bandOf, curveOf, inWords, type Metric, METRICS, type Pasted, readLinks } from './board.ts';

const pasted = signal<Pasted>({ results: [], problems: [] });
const text = signal('');

function Board() {
  const id = useOwnId();
  const asked = movedTo('metric') as Metric;
  const metric = asked in METRICS ? asked : 'critic/score/mean';
  const { results, problems } = pasted.value;
  const last = Math.max(1, ...results.flatMap(({ history }) => history.map((line) => line['training/global_step'])));
  const curves = results.map((result) => curveOf(result, metric, last));
  const says = inWords(curves, METRICS[metric]);
  const read = async (to: string) => {
    text.value = to;
    const found = await readLinks(to);
    if (text.value === to) pasted.value = found;
  };
  return (
    <>
      <label for={id}>Links to results, one under the other</label>
      <textarea
        id={id}
        rows={6}
        spellcheck={false}
        value={text.value}
        onInput={(event) => void read(event.currentTarget.value)}
      />
      <div class="buttons">
        <button
          type="button"
          onClick={() => {
            void read('');
            move({ metric: undefined });
          }}
        >
          Empty the board
        </button>
      </div>
      <div class="controls">
        <Select
          control="metric"
          label="Curve"
          initial="critic/score/mean"
          options={Object.entries(METRICS).map(([value, name]) => ({ value, name }))}
        />
      </div>
      <div
        class="svg wide"
        dangerouslySetInnerHTML={{ __html: boardPlot(curves, bandOf(curves), `${METRICS[metric]} by step. ${says}`) }}
      />
      <p class="says" role="status">
        {says}
      </p>
      {problems.length > 0 && (
        <ul class="result wrong">
          {problems.map((problem) => (
            <li key={problem}>{problem}</li>
          ))}
        </ul>
      )}
    </>
  );
}

const place = document.querySelector('[data-board]')!;
place.replaceChildren();
render(<Board />, place);
