/** Figure 3.3: the curves of a whole run, and the tries of the step under the slider. */

import { useEffect, useState } from 'preact/hooks';
import { short } from '../../../src/ui/format.ts';
import { metricHint } from '../../../src/report/metricDocs.ts';
import type { Recording } from '../../recorded/recording.ts';
import { asTries } from '../../views/glossary.ts';
import { Conversation } from '../../views/tries/conversation.tsx';
import { isHidden, move, movedTo, numberOf } from '../kit/address.ts';
import { Figure, Slider } from '../kit/figure.tsx';
import { METRICS, metricPlot, RECORDED } from './stills.ts';

const STEPS = 80;
/** Number of tries that are shown, of the sixteen that the recording has for each step: eight of each of two problems. */
const SHOWN = 4;

/** Figure 3.3. */
export function CurvesFigure() {
  const at = Math.round(numberOf('step', 1, 1, STEPS));
  const lossFirst = movedTo('first') === 'loss';
  const chosen = METRICS.find(({ id }) => id === movedTo('about')) ?? METRICS[lossFirst ? 6 : 0];
  const ordered = lossFirst ? [METRICS[6], ...METRICS.slice(0, 6)] : METRICS;
  const value = (metric: string) => RECORDED.whole.metrics[metric].findLast(([step]) => step <= at)?.[1];
  const known = (metric: string) => {
    const one = value(metric);
    return one === undefined ? 'not measured' : short(one);
  };
  const says = `${chosen.title} is ${known(chosen.metric)} at step ${at}. ${asTries(metricHint(chosen.metric))}`;
  return (
    <Figure
      number="3.3"
      title="Seven curves of one run"
      says={says}
      source={`Recorded: ${RECORDED.whole.command}, commit ${RECORDED.whole.commit}. pass@1 is measured every 20 steps.`}
    >
      <div class="controls">
        <Slider control="step" label="Step" value={at} least={1} most={STEPS} step={1} shown={`${at}`} />
        {!isHidden('first') && (
          <label class="choice">
            <input
              type="checkbox"
              checked={lossFirst}
              onChange={(event) => move({ first: event.currentTarget.checked ? 'loss' : undefined, about: undefined })}
            />
            loss first, as many readers do
          </label>
        )}
      </div>
      <div class="small-charts">
        {ordered.map((metric) => (
          <div key={metric.id}>
            <button type="button" aria-pressed={chosen === metric} onClick={() => move({ about: metric.id })}>
              {metric.title} <output>{known(metric.metric)}</output>
            </button>
            <div class="svg" dangerouslySetInnerHTML={{ __html: metricPlot(metric, at) }} />
          </div>
        ))}
      </div>
      <StepTries at={at} />
    </Figure>
  );
}

/** Shows the tries of a step of the recorded run, which is loaded when the figure is drawn. */
function StepTries({ at }: { at: number }) {
  const [recording, setRecording] = useState<Recording | undefined>(undefined);
  useEffect(() => {
    void import('../../recorded/recording.ts')
      .then(({ openRecording }) => openRecording('gsm8k-tool'))
      .then(setRecording)
      .catch(() => {}); // the curves are enough
  }, []);
  const tries = recording?.tries.filter(({ step }) => step === at) ?? [];
  if (tries.length === 0) return null;
  return (
    <>
      <p class="question">
        Step {at}: {tries[0].messages[tries[0].promptMessages - 1].content}
      </p>
      <ul class="step-tries">
        {tries.slice(0, SHOWN).map((one, i) => (
          <li key={i}>
            <Conversation shown={one} />
            <span class="note">reward {one.score === null ? 'none' : short(one.score)}</span>
          </li>
        ))}
      </ul>
    </>
  );
}
