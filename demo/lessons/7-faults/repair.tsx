/** Figure 7.2: training in this tab with a corrected config, drawn over the curve of the faulty run. */

import { signal } from '@preact/signals';
import { short } from '../../../src/ui/format.ts';
import { move, movedTo } from '../kit/address.ts';
import { Figure, LiveButton, Select } from '../kit/figure.tsx';
import { runPlot } from '../kit/plot.ts';
import { isPredicted } from '../kit/predict.tsx';
import { TRUTHS } from './causes.ts';
import { idOf, shownRun } from './figure.tsx';
import { late, RECORDED, STEPS } from './runs.ts';

/** Number of steps of a live run. */
const TRAINED_STEPS = 16;
/** Seconds of the first press on two CPU cores without other work (`npm run bench:page -- --lesson 7-faults`). */
const QUIET_S = 50;
const SIZE = ['data.trainBatchSize=8', 'actor.ppoMiniBatchSize=4'];

/** Result of training in this tab: the faulty run that was corrected, the corrected setting, and the share of right tries at each step. */
const live = signal<{ run: number; setting: string; curve: number[] } | undefined>(undefined);

const right = 'critic/acc/mean';

/** Figure 7.2. */
export function RepairFigure() {
  const run = shownRun();
  const { repair } = TRUTHS[run];
  const value = repair.values.find((one) => one === movedTo('mend')) ?? repair.values[0];
  const setting = `${repair.key}=${value}`;
  const own = live.value?.run === run ? live.value : undefined;
  const faulty = RECORDED.runs[run].curves[right];
  const sound = RECORDED.runs[0].curves[right];
  const isOpen = isPredicted(idOf(run));
  const last = own?.curve.at(-1);
  const says = !isOpen
    ? `Predict first what is wrong with run ${run}.`
    : own
      ? `Trained in this tab with ${own.setting}: ${short(last ?? 0)} of the tries are right at step ${own.curve.length}. In run ${run} it was ${short(faulty[Math.min(own.curve.length, faulty.length - 1)] ?? 0)}.`
      : `In the last steps ${short(late({ curves: RECORDED.runs[run].curves }, right) ?? 0)} of the tries are right in run ${run}, and ${short(late({ curves: RECORDED.runs[0].curves }, right) ?? 0)} in a sound run.`;
  const shown = own ? [null, ...own.curve] : sound;
  return (
    <Figure
      number="7.2"
      title={`Repair run ${run}`}
      says={says}
      source="Pale: the recorded run. Without a trained curve the other one is run 0, which is sound and has seed 4."
    >
      {isOpen && (
        <>
          <p>{repair.about}</p>
          <div class="controls">
            <Select
              control="mend"
              label={repair.key}
              initial={repair.values[0]}
              options={repair.values.map((one) => ({ value: one, name: one }))}
            />
          </div>
          <div
            class="svg"
            dangerouslySetInnerHTML={{
              __html: runPlot(shown, `Share of right tries. ${says}`, {
                last: STEPS,
                most: 1,
                behind: run === 0 && !own ? [] : [faulty],
              }),
            }}
          />
          <Train run={run} setting={setting} />
        </>
      )}
    </Figure>
  );
}

function Train({ run, setting }: { run: number; setting: string }) {
  const train = async (signal: AbortSignal, say: (text: string) => void): Promise<string> => {
    live.value = undefined;
    const curve: number[] = [];
    let tries = 0;
    const { trainHere } = await import('../kit/live.ts');
    await trainHere(TRAINED_STEPS, [...SIZE, setting], {
      signal,
      onStep: (metrics) => {
        curve.push(metrics[right]);
        live.value = { run, setting, curve: [...curve] };
        say(`Step ${curve.length} of ${TRAINED_STEPS}.`);
      },
      onTry: () => curve.length === 0 && say(`Step 1: ${++tries} tries.`),
    });
    return `${curve.length} steps.`;
  };
  const showRecorded = () => {
    live.value = undefined;
    move({ mend: undefined });
  };
  return (
    <div class="buttons">
      <LiveButton
        id="repair"
        label="Repair it here"
        coldSeconds={QUIET_S}
        run={train}
        done="Trained"
        recorded="curves"
        onRecorded={live.value?.run === run ? showRecorded : undefined}
      />
    </div>
  );
}
