/** Figure 4.3: rewards with a hole: what each pays during training, and the share of right tries. */

import { signal, useSignal } from '@preact/signals';
import { short } from '../../../src/ui/format.ts';
import { CHEATS, type Preset, PRESETS } from '../../views/rules/presets.ts';
import { Conversation } from '../../views/tries/conversation.tsx';
import { embedded, isHidden, move, movedTo, numberOf } from '../kit/address.ts';
import { CodeField } from '../kit/exercise.tsx';
import { Figure, LiveButton, Select, Slider } from '../kit/figure.tsx';
import { isPredicted, predictedCurve } from '../kit/predict.tsx';
import { cheatPlot } from './plots.ts';
import { CALL_STEPS, type CheatRun, othersInWords, RECORDED, runInWords } from './stills.ts';

/** The page's reward presets that have a recorded run, by the name of the recorded reward. */
const [calls, length, form] = CHEATS;
const REWARDS: Readonly<Record<string, Preset>> = { calls, length, form };

/** Number of steps of a live run. */
const STEPS = 20;
/** Seconds of the first press on two CPU cores without other work (`npm run bench:page -- --lesson 4-tools`). */
const COLD_S = 50;

type LiveRun = Pick<CheatRun, 'pays' | 'steps' | 'heldOut' | 'tries'>;

/** Results of the last live run in this tab. `pays`: the chosen reward when the run started; the figure shows the run in its place. */
export const drawn = signal<LiveRun | undefined>(undefined);

const chosenReward = (): string => movedTo('pays') ?? RECORDED.runs[0].pays;

const shownLive = (): LiveRun | undefined => (drawn.value?.pays === chosenReward() ? drawn.value : undefined);

/** Figure 4.3. */
export function CheatFigure() {
  const pays = chosenReward();
  const own = shownLive();
  const prediction = pays === 'calls' ? '4.3 calls' : '4.3';
  const revealed = embedded !== null || own !== undefined || isPredicted(prediction);
  const recorded = RECORDED.runs.find((run) => run.pays === pays) ?? RECORDED.runs[0];
  const run: LiveRun = own ?? recorded;
  const isGuessed = pays === 'calls' && own === undefined;
  const guess = isGuessed ? predictedCurve('4.3 calls')?.map((value, i) => [CALL_STEPS[i], value] as const) : undefined;
  const last = run.steps.at(-1)?.[0] ?? 0;
  const withTries = [...new Set(run.tries.map(({ step }) => step))];
  const at = Math.round(numberOf('step', last, Math.min(1, last), Math.max(1, last)));
  const shownStep = withTries.reduce(
    (near, step) => (Math.abs(step - at) < Math.abs(near - at) ? step : near),
    withTries[0] ?? 0,
  );
  const tries = run.tries.filter(({ step }) => step === shownStep);
  const says = !revealed
    ? `Predict first ${pays === 'calls' ? 'below' : 'above'}, or look without a guess. Then the curves appear.`
    : run.steps.length === 0
      ? 'The first step is running.'
      : runInWords(run);
  return (
    <Figure
      number="4.3"
      title="What is paid, and what is wanted"
      says={says}
      source={
        own
          ? 'Trained in this tab on the reward of the code below: 8 problems of 8 tries a step, 64 held-out problems every ten steps (dots).'
          : `Recorded: ${recorded.command}, commit ${recorded.commit}, ${RECORDED.adapter}, ${RECORDED.date}, seed 1. Dots: 64 held-out problems, of which ${othersInWords(recorded)}.${guess ? ' Dotted: your curve.' : ''}`
      }
    >
      {RECORDED.runs.length > 1 && (
        <div class="controls">
          <Select
            control="pays"
            label="Reward"
            initial={RECORDED.runs[0].pays}
            resets={['step']}
            options={RECORDED.runs.map((one) => ({ value: one.pays, name: REWARDS[one.pays].name }))}
          />
        </div>
      )}
      {revealed && (
        <>
          <div
            class="svg"
            dangerouslySetInnerHTML={{
              __html: cheatPlot({ ...run, guess }, at, says, own ? STEPS : undefined),
            }}
          />
          {last > 0 && (
            <>
              <Slider control="step" label="Step" value={at} least={1} most={last} step={1} shown={`${at}`} />
              <p class="note">
                {tries.length > 0
                  ? `Tries of step ${shownStep}: ${tries[0].messages[0].content}`
                  : 'No tries are stored.'}
              </p>
              <ol class="one-group">
                {tries.slice(0, 4).map((one, i) => (
                  <li key={i} class="one-try" aria-label={`Try ${i + 1}`}>
                    <Conversation shown={one} />
                    <span class="note">
                      paid {short(one.score ?? NaN)}, {one.acc === 1 ? 'right' : 'wrong'}
                    </span>
                  </li>
                ))}
              </ol>
            </>
          )}
        </>
      )}
      {!isHidden('code') && <OwnReward />}
    </Figure>
  );
}

function OwnReward() {
  const code = useSignal(movedTo('code') ?? calls.code);
  const train = async (stop: AbortSignal, say: (text: string) => void): Promise<string> => {
    move({ code: code.peek().length <= 4000 ? code.peek() : undefined, step: undefined });
    const { trainOn } = await import('./live.ts');
    const run: LiveRun = { pays: chosenReward(), steps: [], heldOut: [], tries: [] };
    const show = () =>
      (drawn.value = { ...run, steps: [...run.steps], heldOut: [...run.heldOut], tries: [...run.tries] });
    await trainOn(code.peek(), STEPS, {
      signal: stop,
      onStep: (step, tries) => {
        if (stop.aborted) return;
        run.steps.push([...step]);
        run.tries.push(...tries);
        say(`Step ${step[0]} of ${STEPS}.`);
        show();
      },
      onEvaluating: (done, total) => say(`${done} of ${total} held-out problems evaluated.`),
      onHeldOut: (step, share) => {
        if (stop.aborted) return;
        run.heldOut.push([step, share]);
        show();
      },
    });
    return runInWords(run);
  };
  return (
    <details class="fold">
      <summary>Write a reward and train on it</summary>
      <div class="buttons">
        {PRESETS.reward.map((preset) => (
          <button key={preset.name} type="button" onClick={() => (code.value = preset.code)}>
            {preset.name}
          </button>
        ))}
      </div>
      <CodeField label="Code of the reward" code={code} />
      <div class="buttons">
        <LiveButton
          id="cheat"
          label={`Train ${STEPS} steps here`}
          coldSeconds={COLD_S}
          run={train}
          done="Trained"
          onRecorded={shownLive() ? () => (drawn.value = undefined) : undefined}
        />
      </div>
    </details>
  );
}
