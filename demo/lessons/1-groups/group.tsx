/** Figure 1.1: the tries of one problem, with rewards that a reader can change, and the advantage of each. */

import { signal, useSignal } from '@preact/signals';
import { mean, std } from '../../../src/grpo/advantages/index.ts';
import type { LoggedRollout } from '../../../src/runs/rollouts.ts';
import { short, signed } from '../../../src/ui/format.ts';
import { Conversation } from '../../views/tries/conversation.tsx';
import { whatItTeaches } from '../../views/tries/groups.ts';
import { embedded, isHidden, move, movedTo, numberOf } from '../kit/address.ts';
import type { Checked } from '../kit/checks.ts';
import { CodeField } from '../kit/exercise.tsx';
import { Figure, LiveButton, Select, useOwnId } from '../kit/figure.tsx';
import { bar, strip } from '../kit/plot.ts';
import { isPredicted, predicted } from '../kit/predict.tsx';
import { advantagesBy, type Method, METHODS, questionOf, triesOf } from '../kit/recordings.ts';
import { METHOD_NAMES, RECORDED } from './stills.ts';

/** Seconds of the first press on two CPU cores without other work (`npm run bench:page -- --lesson 1-groups`). */
const COLD_S = 5;
/** Advantage at the end of the bars' axis, unless the group has a larger one. */
const LEAST_AXIS = 3;

/** Tries at one problem that the model of this tab sampled. */
const drawn = signal<{ problem: number; tries: LoggedRollout[] } | undefined>(undefined);

/** Reward of a try as the reader set it: a number, NaN = no reward, undefined = left out of the group. */
type Given = number | undefined;

/** Returns the rewards in the address, or the tries' own rewards. */
function givenRewards(tries: readonly LoggedRollout[]): Given[] {
  const parts = movedTo('rewards')?.split(',') ?? [];
  return tries.map(({ score }, i) => {
    const part = parts[i] ?? '';
    if (part === 'x') return undefined;
    if (part === '-') return NaN;
    const value = part === '' ? NaN : Number(part);
    return Number.isFinite(value) ? Math.min(1, Math.max(0, value)) : (score ?? NaN);
  });
}

const written = (given: Given): string => (given === undefined ? 'x' : Number.isNaN(given) ? '-' : String(given));

/** How much more strongly group B's right try is pushed up than group A's, as the reader guessed. */
const GUESSES: Readonly<Record<string, number>> = { same: 1, times: 2.6, eight: 8 };

/** Returns the guessed advantage of the right try of group B, if the figure shows this group as it was recorded. */
function guessedPush(problem: number, method: Method): number | undefined {
  const times = GUESSES[predicted('1.1') ?? ''];
  const asRecorded = problem === 1 && method === 'grpo' && movedTo('rewards') === undefined && !drawn.value;
  if (times === undefined || !asRecorded) return undefined;
  return (
    times *
    advantagesBy(
      'grpo',
      RECORDED.groups[0].tries.map(({ score }) => score ?? NaN),
    )[0]
  );
}

/** Returns the figure's data: the tries with the reader's rewards and their advantages, and which tries are left out. */
function shownGroup() {
  const problem = Math.round(numberOf('problem', 0, 0, RECORDED.groups.length - 1));
  const live = drawn.value?.problem === problem ? drawn.value.tries : undefined;
  const tries = live ?? triesOf(RECORDED.groups[problem], problem);
  const given = givenRewards(tries);
  const asked = movedTo('method') as Method;
  const method = METHOD_NAMES.includes(asked) ? asked : 'grpo';
  const inGroup = tries.flatMap((_, i) => (given[i] === undefined ? [] : [i]));
  const rewards = inGroup.map((i) => given[i]!);
  const advantages = advantagesBy(
    method,
    rewards,
    inGroup.map((i) => tries[i].responseTokens),
  );
  const known = rewards.filter((reward) => !Number.isNaN(reward));
  const scored = inGroup.map((i, k) => ({
    ...tries[i],
    score: Number.isNaN(rewards[k]) ? null : rewards[k],
    advantage: advantages[k],
  }));
  const advantageOf = (i: number) => advantages[inGroup.indexOf(i)];
  return { problem, isLive: live !== undefined, tries, given, method, rewards, known, scored, advantageOf };
}

/** Figure 1.1. */
export function GroupFigure() {
  const shown = shownGroup();
  const { problem, isLive, tries, given, method, rewards, known, scored, advantageOf } = shown;
  const revealed = embedded !== null || isPredicted('1.1');
  const [center, spread] = known.length > 0 ? [mean(known), std(known)] : [0, 0];
  const teaches =
    scored.length === 0
      ? 'Every try is left out. Put one back.'
      : whatItTeaches({ group: problem, tries: scored }, scored.length, false, METHODS[method].name);
  const guess = guessedPush(problem, method);
  const most = Math.max(LEAST_AXIS, guess ?? 0, ...scored.map(({ advantage }) => Math.abs(advantage)));
  const set = (i: number, to: Given) => move({ rewards: given.map((one, k) => written(k === i ? to : one)).join(',') });
  return (
    <Figure
      number="1.1"
      title="One problem, eight tries"
      says={revealed ? teaches : 'Predict first, or look without a guess. Then the advantages appear.'}
      source={isLive ? 'Drawn in this tab, by the shipped model.' : sourceOf()}
    >
      <div class="controls">
        <Select
          control="problem"
          label="Problem"
          initial="0"
          resets={['rewards']}
          options={RECORDED.groups.map((group, g) => ({ value: `${g}`, name: `${g + 1}. ${questionOf(group)}` }))}
        />
        <Select
          control="method"
          label="Method"
          initial="grpo"
          options={METHOD_NAMES.map((name) => ({ value: name, name: `${METHODS[name].name}: ${METHODS[name].note}` }))}
        />
      </div>
      <p class="question">{questionOf(RECORDED.groups[problem])}</p>
      <div
        class="svg"
        dangerouslySetInnerHTML={{
          __html: strip(
            rewards,
            center,
            spread,
            `Rewards on a line from 0 to 1. Mean ${short(center)}, spread ${short(spread)}.`,
          ),
        }}
      />
      <p class="note">Dots: rewards. Line: their mean. Band: one spread below and above it.</p>
      <ol class="one-group">
        {tries.map((one, i) => (
          <OneTry
            key={i}
            place={i + 1}
            shown={one}
            given={given[i]}
            advantage={revealed ? advantageOf(i) : undefined}
            most={most}
            guess={one.acc === 1 ? guess : undefined}
            onGiven={(to) => set(i, to)}
          />
        ))}
      </ol>
      {method === 'opo' && (
        <p class="note">
          The lengths here count the calculator's results too. The trainer leaves those out of OPO's mean.
        </p>
      )}
      <div class="buttons">
        <DrawButtons problem={problem} isLive={isLive} />
        {movedTo('rewards') !== undefined && (
          <button type="button" onClick={() => move({ rewards: undefined })}>
            Put the rewards back
          </button>
        )}
      </div>
      {!isHidden('code') && <RewardCode tries={tries} />}
    </Figure>
  );
}

const sourceOf = (): string =>
  `Recorded: ${RECORDED.command}, commit ${RECORDED.commit}, ${RECORDED.adapter}, ${RECORDED.date}.`;

interface OneTryProps {
  place: number;
  shown: LoggedRollout;
  given: Given;
  /** Advantage of the try; undefined = not shown yet, or the try is left out. */
  advantage: number | undefined;
  /** Size of an advantage at the end of the axis. */
  most: number;
  guess: number | undefined;
  onGiven: (to: Given) => void;
}

function OneTry({ place, shown, given, advantage, most, guess, onGiven }: OneTryProps) {
  const id = useOwnId();
  const state = given === undefined ? 'out' : Number.isNaN(given) ? 'none' : 'scored';
  const reward = state === 'scored' ? short(given!) : state === 'none' ? 'none' : 'left out';
  const change = (to: string) => onGiven(to === 'out' ? undefined : to === 'none' ? NaN : (shown.score ?? 0));
  return (
    <li class="one-try" aria-label={`Try ${place}`}>
      <Conversation shown={shown} />
      <div class="reward">
        <label for={id}>
          Reward: <output>{reward}</output>
        </label>
        <input
          id={id}
          type="range"
          min={0}
          max={1}
          step={0.05}
          disabled={state !== 'scored'}
          value={state === 'scored' ? given : 0}
          aria-valuetext={reward}
          onInput={(event) => onGiven(Number(event.currentTarget.value))}
        />
      </div>
      <select aria-label={`Try ${place} counts`} value={state} onChange={(event) => change(event.currentTarget.value)}>
        <option value="scored">scored</option>
        <option value="none">no reward</option>
        <option value="out">left out</option>
      </select>
      <div class="push">
        {advantage === undefined ? (
          <span class="note">{state === 'out' ? 'not in the group' : 'advantage: ?'}</span>
        ) : (
          <>
            <span>
              advantage <b>{signed(advantage)}</b>
              {guess !== undefined && <span class="note"> you said {signed(guess)}</span>}
            </span>
            <div
              class="svg"
              dangerouslySetInnerHTML={{ __html: bar(advantage, most, `Advantage ${signed(advantage)}`, guess) }}
            />
          </>
        )}
      </div>
    </li>
  );
}

function DrawButtons({ problem, isLive }: { problem: number; isLive: boolean }) {
  const draw = async (signal: AbortSignal, say: (text: string) => void) => {
    const arrived: LoggedRollout[] = [];
    const { drawGroup } = await import('../kit/live.ts');
    const onTry = (one: LoggedRollout) => {
      if (signal.aborted) return;
      arrived.push(one);
      say(`${arrived.length} of 8 tries drawn.`);
      drawn.value = { problem, tries: [...arrived] };
      if (arrived.length === 1) move({ rewards: undefined });
    };
    await drawGroup(problem, { onTry, signal });
    return sameAsRecorded(problem, arrived);
  };
  const putBack = () => {
    drawn.value = undefined;
    move({ rewards: undefined });
  };
  return (
    <LiveButton
      id="draw"
      label="Draw it here"
      coldSeconds={COLD_S}
      run={draw}
      done="Drawn"
      onRecorded={isLive ? putBack : undefined}
    />
  );
}

/** Says whether the tries sampled here equal the recorded ones. On another GPU the last bits of a probability can differ. */
function sameAsRecorded(problem: number, tries: readonly LoggedRollout[]): string {
  const texts = (of: readonly { messages: LoggedRollout['messages'] }[]) =>
    of
      .map(({ messages }) => JSON.stringify(messages))
      .sort()
      .join();
  return texts(tries) === texts(triesOf(RECORDED.groups[problem], problem))
    ? 'They are the recorded ones, token for token: the same seed draws the same tries.'
    : 'They differ from the recorded ones: on another GPU, rounding can change a token.';
}

const REWARD = `// Called for every try. Return a number from 0 to 1.
//   text        all that the model wrote
//   answer      the right answer, as text
//   toolCalls   number of calculator calls
//   correct     true if the answer is right
export function reward({ text, answer, toolCalls, correct }) {
  return toolCalls > 0 ? 1 : 0;
}
`;

/** The reader's reward as code, which scores the shown tries. */
function RewardCode({ tries }: { tries: readonly LoggedRollout[] }) {
  const code = useSignal(REWARD);
  const result = useSignal<Checked | undefined>(undefined);
  const open = useSignal(false);
  const score = async () => {
    const [{ Rule, RuleError }, { tryOf }] = await Promise.all([
      import('../../../src/extensions/modules/index.ts'),
      import('../../training/ruleParts.ts'),
    ]);
    try {
      const rule = await Rule.open('reward', code.peek());
      const scores = await rule.run(tries.map(tryOf)).finally(() => rule.close());
      const outside = scores.find((one) => one < 0 || one > 1);
      move({ rewards: scores.map((one) => String(Math.min(1, Math.max(0, one)))).join(',') });
      result.value = {
        ok: true,
        says:
          outside === undefined
            ? 'Scored.'
            : `One reward is ${short(outside)}. The sliders end at 0 and 1, so it was moved there.`,
      };
    } catch (error) {
      if (!(error instanceof RuleError)) throw error;
      const { line, column, message } = error;
      result.value = { ok: false, says: line === undefined ? message : `Line ${line}: ${message}`, line, column };
    }
  };
  return (
    <details class="fold" onToggle={(event) => (open.value = event.currentTarget.open)}>
      <summary>Write the reward yourself</summary>
      {open.value && (
        <>
          <CodeField label="Code of the reward" code={code} result={result.value} />
          <div class="buttons">
            <button type="button" class="primary" onClick={() => void score()}>
              Score the tries
            </button>
          </div>
          <p class={`result ${result.value?.ok === false ? 'wrong' : ''}`} role="status">
            {result.value?.says}
          </p>
        </>
      )}
    </details>
  );
}
