/** Figures 6.1 to 6.3: how certain a pass rate is, why tries do not count as problems, and pass@k. */

import { signal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { passInterval, type PassInterval } from '../../../src/report/passInterval.ts';
import { move, movedTo, numberOf } from '../kit/address.ts';
import { Figure, LiveButton, PowerSlider, Select, Slider } from '../kit/figure.tsx';
import { DRAWS, layouts, ofRate, rateOf, resampled, TRIES } from './evidence.ts';
import { intervalsPlot, passPlot, ratesPlot } from './plots.ts';
import {
  layoutRows,
  layoutsInWords,
  type Model,
  MODELS,
  passCurve,
  passInWords,
  ratesInWords,
  SOURCE,
  span,
  START,
  three,
  TRAINED,
} from './stills.ts';

/** Seconds of the first press on two CPU cores without other work (`npm run bench:page -- --lesson 6-claims`). */
const COLD_S = 10;

const modelOf = (control: string, among: readonly Model[] = MODELS): Model =>
  among.find(({ id }) => id === (movedTo(control) ?? TRAINED.id)) ?? TRAINED;

const options = (models: readonly Model[]) => models.map(({ id, name }) => ({ value: id, name }));

/** Evaluations in this tab. */
const own = signal<readonly PassInterval[]>([]);

const OWN_RATE = 'own';

export function RatesFigure() {
  const problems = 2 ** Math.round(numberOf('n', 6, 4, 10));
  const isRate = movedTo('model') === OWN_RATE;
  const given = numberOf('rate', 0.95, 0.01, 0.99);
  const truth = isRate ? given : modelOf('model').outcomes;
  const rate = typeof truth === 'number' ? truth : rateOf(truth);
  const { rates, held } = useMemo(() => resampled(truth, problems), [truth, problems]);
  const says = ratesInWords(problems, rate, held);
  const shown = movedTo('model') === START.id ? own.value : [];
  const run = async (stop: AbortSignal, say: (text: string) => void): Promise<string> => {
    move({ model: START.id, n: undefined });
    const { evaluateHere, PROBLEMS } = await import('./live.ts');
    const outcomes = await evaluateHere({
      signal: stop,
      onProgress: (done) => say(`${done} of ${PROBLEMS} problems.`),
    });
    if (!outcomes || stop.aborted) return '';
    const found = passInterval(outcomes);
    own.value = [...own.peek(), found].slice(-4);
    return `Your evaluation: ${three(found.mean)} (${span(found)}).`;
  };
  return (
    <Figure
      number="6.1"
      title={`${DRAWS} evaluations of one model`}
      says={says}
      source={`${isRate ? 'Drawn with the rate of the slider.' : `Each dot: ${problems} random problems, one try of each. ${SOURCE}`}${shown.length > 0 ? ' Lowest rows: evaluations in this tab, 64 problems with 8 tries.' : ''}`}
    >
      <div class="controls">
        <Select
          control="model"
          label="Model"
          initial={TRAINED.id}
          options={[...options(MODELS), { value: OWN_RATE, name: 'a rate of your own' }]}
        />
        <PowerSlider control="n" label="Problems" value={problems} least={4} most={10} />
        {isRate && (
          <Slider
            control="rate"
            label="True rate"
            value={given}
            least={0.01}
            most={0.99}
            step={0.01}
            shown={three(given)}
          />
        )}
      </div>
      <div
        class="svg"
        dangerouslySetInnerHTML={{
          __html: ratesPlot({ rates, truth: rate, expected: ofRate(rate, problems), own: shown }, says),
        }}
      />
      <div class="buttons">
        <LiveButton
          id="evaluate"
          label="Evaluate the shipped model here"
          coldSeconds={COLD_S}
          run={run}
          done="Evaluated"
          onRecorded={own.value.length > 0 ? () => (own.value = []) : undefined}
        />
      </div>
    </Figure>
  );
}

export function LayoutsFigure() {
  const { outcomes } = modelOf('of');
  const draw = Math.round(numberOf('draw', 1, 1, 99));
  const all = useMemo(() => layouts(outcomes, draw), [outcomes, draw]);
  const says = layoutsInWords(all);
  return (
    <Figure number="6.2" title="256 tries, spent four ways" says={says} source={SOURCE}>
      <div class="controls">
        <Select control="of" label="Model" initial={TRAINED.id} options={options(MODELS)} />
        <Slider control="draw" label="Evaluation" value={draw} least={1} most={99} step={1} shown={`${draw}`} />
      </div>
      <div class="svg" dangerouslySetInnerHTML={{ __html: intervalsPlot(layoutRows(all), rateOf(outcomes), says) }} />
      <div class="scroll" tabindex={0} role="group" aria-label="How often the intervals hold the true rate">
        <table>
          <thead>
            <tr>
              <th>problems x tries</th>
              <th>by problem holds the truth</th>
              <th>tries as problems</th>
            </tr>
          </thead>
          <tbody>
            {layoutRows(all).map(({ name, heldByProblem, heldNaive }) => (
              <tr key={name}>
                <td>{name}</td>
                <td>
                  {heldByProblem} of {DRAWS}
                </td>
                <td>
                  {heldNaive} of {DRAWS}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="note">Upper line: by problem. Lower, dashed line: as if every try were a problem of its own.</p>
    </Figure>
  );
}

const BEFORE = passCurve(START, 'curve-b');

export function PassFigure() {
  const trained = MODELS.filter(({ id }) => id !== START.id);
  const after = modelOf('after', trained);
  const k = Math.round(numberOf('k', 1, 1, TRIES));
  const curve = useMemo(() => passCurve(after, 'curve-a'), [after]);
  const says = passInWords(after, k);
  return (
    <Figure
      number="6.3"
      title="pass@k before and after"
      says={says}
      source={`${SOURCE} Bands: by problem, with k tries joined to one attempt.`}
    >
      <div class="controls">
        <Select control="after" label="After training" initial={TRAINED.id} options={options(trained)} />
        <Slider control="k" label="Tries, k" value={k} least={1} most={TRIES} step={1} shown={`${k}`} />
      </div>
      <div class="svg" dangerouslySetInnerHTML={{ __html: passPlot([BEFORE, curve], k, says) }} />
    </Figure>
  );
}
