/** Figure 5.1, which weights drew each token, and figure 5.4, the time that a pipeline saves. */

import { useEffect, useMemo, useState } from 'preact/hooks';
import { short } from '../../../src/ui/format.ts';
import { isHidden, move, movedTo, numberOf } from '../kit/address.ts';
import { Figure, Select, Slider } from '../kit/figure.tsx';
import { timesPlot } from './plots.ts';
import {
  agesInWords,
  agesOf,
  PIPELINE_SOURCE,
  PIPELINES,
  RECORDED,
  rowsHtml,
  rowsInWords,
  shownTries,
  timesInWords,
} from './stills.ts';
import type { timesOf } from './times.ts';

const { setting: SETTING, work, measured } = RECORDED;

const LAST = PIPELINES.length - 1;

/** Figure 5.1. */
export function RowsFigure() {
  const pipeline = PIPELINES.find(({ name }) => name === movedTo('pipeline')) ?? PIPELINES[LAST];
  const more = movedTo('rows') === 'all';
  return (
    <Figure number="5.1" title="Who drew which token" says={rowsInWords(pipeline)} source={PIPELINE_SOURCE}>
      <div class="controls">
        <Select
          control="pipeline"
          label="Pipeline"
          initial={PIPELINES[LAST].name}
          options={PIPELINES.map(({ name }) => ({ value: name, name }))}
        />
        {!isHidden('rows') && (
          <label class="choice">
            <input
              type="checkbox"
              checked={more}
              onChange={(event) => move({ rows: event.currentTarget.checked ? 'all' : undefined })}
            />
            all 16 groups
          </label>
        )}
      </div>
      <div
        role="group"
        aria-label="One try of each group, by the weights that drew its tokens"
        dangerouslySetInnerHTML={{ __html: rowsHtml(shownTries(pipeline, more)) }}
      />
      <ul class="ages">
        {['the newest weights', 'weights one step older'].map((name, age) => (
          <li key={name}>
            <span class={`piece age-${age}`}>{name}</span>
          </li>
        ))}
        <li>
          <span class="piece age-none">not drawn: tool and template</span>
        </li>
      </ul>
      <p class="note">
        One try of a group. In all steps after the first, tokens were drawn {agesInWords(agesOf(pipeline))}.
      </p>
    </Figure>
  );
}

/** Figure 5.4. */
export function TimesFigure() {
  const tool = numberOf('tool', SETTING.tool, 0, 20);
  const threshold = numberOf('ahead', SETTING.threshold, 0, 1);
  const sync = Math.round(numberOf('sync', SETTING.sync, 1, 4));
  const partial = movedTo('partial') !== 'no';
  const [simulated, setSimulated] = useState<typeof timesOf | undefined>(undefined);
  useEffect(() => void import('./times.ts').then((module) => setSimulated(() => module.timesOf)), []);
  const times = useMemo(
    () => simulated?.(work, { tool, threshold, sync, partial }) ?? RECORDED.times,
    [simulated, tool, threshold, sync, partial],
  );
  const says = timesInWords(times);
  return (
    <Figure
      number="5.4"
      title="What waiting costs"
      says={says}
      source={`Simulated from the work of a measured run with four slow searches a try (docs/lab/performance.md, SwiftShader, nothing else running). With searches of up to 3 s it measured ${measured.map((seconds) => `${short(seconds)} s`).join(', ')} per step.`}
    >
      <div class="controls">
        <Slider control="tool" label="Slowest search" value={tool} least={0} most={20} step={1} shown={`${tool} s`} />
        <Slider
          control="ahead"
          label="Groups ahead, share of a step"
          value={threshold}
          least={0}
          most={1}
          step={0.25}
          shown={`${threshold}`}
        />
        <Slider
          control="sync"
          label="Steps from sync to sync"
          value={sync}
          least={1}
          most={4}
          step={1}
          shown={`${sync}`}
        />
        {!isHidden('partial') && (
          <label class="choice">
            <input
              type="checkbox"
              checked={partial}
              onChange={(event) => move({ partial: event.currentTarget.checked ? undefined : 'no' })}
            />
            new weights do not wait for tries in flight
          </label>
        )}
      </div>
      <div class="svg" dangerouslySetInnerHTML={{ __html: timesPlot(times, says) }} />
      <p class="note">
        Filled: training. Pale: training waits for tries. The last three settings are those of fully-async.
      </p>
    </Figure>
  );
}
