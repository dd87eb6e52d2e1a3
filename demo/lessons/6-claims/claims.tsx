/** Figures 6.4 and 6.5: picking the best of several checkpoints, and comparing algorithms by several seeds. */

import { embedded, movedTo, numberOf } from '../kit/address.ts';
import { Figure, PowerSlider, Select, Slider } from '../kit/figure.tsx';
import { isPredicted } from '../kit/predict.tsx';
import { evaluations, rateOf, TRIES } from './evidence.ts';
import { scoresPlot, seedsPlot } from './plots.ts';
import { ALGORITHMS_SOURCE, MODELS, RUNS, scoresInWords, seedsInWords, SOURCE, TRAINED } from './stills.ts';

export function BestFigure() {
  const model = MODELS.find(({ id }) => id === movedTo('weights')) ?? TRAINED;
  const count = Math.round(numberOf('count', 8, 1, TRIES));
  const problems = 2 ** Math.round(numberOf('size', 8, 4, 8));
  const says = scoresInWords(model, problems, count);
  return (
    <Figure
      number="6.4"
      title="The best of several equals"
      says={says}
      source={`Each dot: one try at each of the first ${problems} problems, with the same weights. ${SOURCE}`}
    >
      <div class="controls">
        <Select
          control="weights"
          label="Model"
          initial={TRAINED.id}
          options={MODELS.map(({ id, name }) => ({ value: id, name }))}
        />
        <Slider control="count" label="Evaluations" value={count} least={1} most={TRIES} step={1} shown={`${count}`} />
        <PowerSlider control="size" label="Problems" value={problems} least={4} most={8} />
      </div>
      <div
        class="svg"
        dangerouslySetInnerHTML={{
          __html: scoresPlot(
            evaluations(model.outcomes, problems),
            count,
            rateOf(model.outcomes.slice(0, problems)),
            says,
          ),
        }}
      />
    </Figure>
  );
}

export function SeedsFigure() {
  const revealed = embedded !== null || isPredicted('6.5');
  const named = (control: string, initial: string) =>
    RUNS.find(({ name }) => name === (movedTo(control) ?? initial)) ?? RUNS[0];
  const [a, b] = [named('one', 'dapo'), named('other', 'sapo')];
  const seeds = Math.round(numberOf('seeds', 3, 1, 8));
  const says = revealed ? seedsInWords([a, b], seeds) : 'Predict first, or look without a guess. Then the runs appear.';
  const names = RUNS.map(({ name }) => ({ value: name, name }));
  return (
    <Figure
      number="6.5"
      title="Six algorithms, three seeds each"
      says={says}
      source={`Dots: final pass@1 of a run on 256 problems; line: mean. ${ALGORITHMS_SOURCE}`}
    >
      {revealed && (
        <>
          <div class="controls">
            <Select control="one" label="Compare" initial="dapo" options={names} />
            <Select control="other" label="with" initial="sapo" options={names} />
            <Slider
              control="seeds"
              label="Seeds a side, for the least p"
              value={seeds}
              least={1}
              most={8}
              step={1}
              shown={`${seeds}`}
            />
          </div>
          <div class="svg" dangerouslySetInnerHTML={{ __html: seedsPlot(RUNS, [a.name, b.name], says) }} />
        </>
      )}
    </Figure>
  );
}
