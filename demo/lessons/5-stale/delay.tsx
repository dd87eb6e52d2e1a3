/** Figure 5.2, the loop with a queue, and figure 5.3, what a correction does to its tokens. */

import { signal, useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { short } from '../../../src/ui/format.ts';
import { STEPS } from '../3-run/stills.ts';
import { embedded, movedTo, numberOf } from '../kit/address.ts';
import type { Checked } from '../kit/checks.ts';
import { CodeField } from '../kit/exercise.tsx';
import { Figure, LiveButton, namesOf, PowerSlider, Select, Slider } from '../kit/figure.tsx';
import { loopWork } from '../kit/loop.ts';
import { curvesPlot } from '../kit/plot.ts';
import { isPredicted } from '../kit/predict.tsx';
import type { LoopStep } from '../kit/runLoop.ts';
import { tradePlot, weightsPlot } from './plots.ts';
import text from './stale.js?raw';
import {
  CAPS,
  capInWords,
  delayCurve,
  DELAYS,
  delaysInWords,
  delaysOf,
  LOSSES,
  type Measure,
  MEASURES,
  SOURCE,
  tokensOf,
  tradeOf,
} from './stills.ts';
import { corrected, type Level, ratiosOf } from './weights.ts';

/** Seconds of the first press on two CPU cores without other work (`npm run bench:page -- --lesson 5-stale`). */
const COLD_S = 35;

/** Run of this tab. */
const own = signal<{ delay: number; loss: string; steps: readonly LoopStep[] }>({ delay: 0, loss: '', steps: [] });

const measured = (step: LoopStep, measure: Measure): number => {
  if (measure === 'reward') return step.reward;
  return measure === 'clipped' ? (step.clipped ?? 0) : ratiosOf(step.logProbs)[measure];
};

/** Figure 5.2. */
export function DelayFigure() {
  const code = useSignal(text);
  const mistake = useSignal<Checked | undefined>(undefined);
  const { id: loss } = LOSSES.find(({ id }) => id === movedTo('loss')) ?? LOSSES[0];
  const asked = movedTo('measure') as Measure;
  const measure: Measure = Object.hasOwn(MEASURES, asked) ? asked : 'reward';
  const delay = Math.round(numberOf('delay', 4, 0, 16));
  const revealed = embedded !== null || isPredicted('5.2');
  const { steps } = own.value;
  const points = useMemo(() => steps.map((step) => [step.step, measured(step, measure)] as const), [steps, measure]);
  const recorded = revealed ? delaysOf(loss).map((one) => delayCurve(one, loss, measure)) : [];
  const curves = [...recorded, ...(points.length > 0 ? [{ name: 'here', className: 'guess', points }] : [])];
  const { name, most } = MEASURES[measure];
  const newest = points.at(-1);
  const here = newest ? ` In this tab, delay ${own.value.delay}: ${short(newest[1])} at step ${newest[0]}.` : '';
  const says = revealed
    ? delaysInWords(loss, measure) + here
    : `Predict first, or look without a guess. Then the recorded runs appear.${here}`;
  const run = loopWork({
    text: () => code.peek(),
    options: { delay, loss },
    onSteps: (to) => (own.value = { delay, loss, steps: to }),
    onMistake: (to) => (mistake.value = to),
  });
  return (
    <Figure
      number="5.2"
      title="A queue between drawing and training"
      says={says}
      source={`${SOURCE} Line: mean of three seeds, each averaged over five steps. Area: lowest to highest seed. Delay 0: the runs of lesson 3.`}
    >
      <CodeField label="The file stale.js" code={code} result={mistake.value} />
      <div class="controls">
        <Select
          control="loss"
          label="Loss"
          initial={LOSSES[0].id}
          options={LOSSES.map(({ id, name: of }) => ({ value: id, name: of }))}
        />
        <Select control="measure" label="Draw" initial="reward" options={namesOf(MEASURES)} />
        <Slider
          control="delay"
          label="Your delay, in steps"
          value={delay}
          least={0}
          most={16}
          step={1}
          shown={`${delay}`}
        />
      </div>
      <div class="buttons">
        <LiveButton
          id="stale"
          label="Run it here"
          coldSeconds={COLD_S}
          run={run}
          done="Trained"
          recorded="curves"
          onRecorded={steps.length > 0 ? () => (own.value = { ...own.peek(), steps: [] }) : undefined}
        />
        <button
          type="button"
          onClick={() => {
            code.value = text;
            mistake.value = undefined;
          }}
        >
          Reset
        </button>
      </div>
      <div
        class="svg"
        dangerouslySetInnerHTML={{
          __html: curvesPlot(curves, { steps: STEPS, y: [0, most], of: name }, `${name} by delay. ${says}`),
        }}
      />
    </Figure>
  );
}

const OWN = 'here';

/** Figure 5.3. */
export function CapFigure() {
  const live = own.value.steps.at(-1);
  const asked = movedTo('tokens') ?? '16';
  const logProbs = asked === OWN && live ? live.logProbs : tokensOf(Number(asked));
  const level: Level = movedTo('level') === 'sequence' ? 'sequence' : 'token';
  const cap = 2 ** numberOf('cap', 1, 0, 4);
  const [capped, before, trade] = useMemo(
    () => [
      corrected(logProbs, cap, level).weights,
      corrected(logProbs, Infinity, level).weights,
      tradeOf(logProbs, level),
    ],
    [logProbs, cap, level],
  );
  const says = capInWords(logProbs, cap, level);
  const recorded = DELAYS.filter((delay) => delay > 0).map((delay) => ({ value: `${delay}`, name: `delay ${delay}` }));
  return (
    <Figure
      number="5.3"
      title="Weights with a cap"
      says={says}
      source={
        asked === OWN && live
          ? `Step ${live.step} of the run in this tab.`
          : `Tokens of the last step, GRPO, seed 1. ${SOURCE}`
      }
    >
      <div class="controls">
        <Select
          control="tokens"
          label="Tokens"
          initial="16"
          options={[...recorded, ...(live ? [{ value: OWN, name: 'of the run in this tab' }] : [])]}
        />
        <Select
          control="level"
          label="A weight for each"
          initial="token"
          options={[
            { value: 'token', name: 'token' },
            { value: 'sequence', name: 'try: the product of its tokens' },
          ]}
        />
        <PowerSlider control="cap" label="Cap" value={cap} least={0} most={4} step={0.25} />
      </div>
      <div class="svg" dangerouslySetInnerHTML={{ __html: weightsPlot(capped, before, says) }} />
      <div
        class="svg"
        dangerouslySetInnerHTML={{
          __html: tradePlot(
            trade,
            cap,
            `By cap: ${CAPS.map((one, i) => `${one}: effective ${short(trade[i].share)}, kept ${short(trade[i].kept)}`).join('; ')}.`,
          ),
        }}
      />
      <p class="note">Above, pale: without a cap. Below: a low cap keeps many tokens in play, and takes weight away.</p>
    </Figure>
  );
}
