/**
 * The tries of a step as conversations: pick a problem, and see the model's tries side by side. Follows the run until the visitor holds a
 * step.
 */

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { LoggedRollout } from '../../../src/runs/rollouts.ts';
import { hold, isHeld, looked, pickedGroup, showNewest, shownTries } from '../../state/tries/shown.ts';
import { config, growing, tries as newestTries } from '../../state/page.ts';
import { algorithmName } from '../../state/settings/fields.ts';
import { form } from '../../state/settings/settings.ts';
import { active } from '../../state/stage.ts';
import { tokensOf } from '../../training/tokens.ts';
import { bestFirst, type Group, groupsOf, isCompared, mostTelling, whatItTeaches } from './groups.ts';
import { Columns } from './columns.tsx';
import { Loop } from './loop.tsx';
import { Picker } from './picker.tsx';
import { Try } from './try.tsx';
import './tries.css';

/** Number of tries that are shown before "show all" is pressed: the best and the worst of the group. */
const FEW = 2;

/** Number of tries that a long list creates at a time, when its end comes near the screen. */
const MORE = 24;

/** The panel of tries. */
export function Tries() {
  const all = useSignal(false);
  const tries = shownTries.value;
  const groups = groupsOf(tries);
  const chosen = useChosen(tries, groups);
  if (!chosen)
    return (
      <p key="none" class="empty">
        The model tries each problem several times. The tries are compared, and the better ones become more likely. They
        will appear here.
      </p>
    );
  const n = chosen.tries.length;
  const method = algorithmName(configOf(tries[0].step)?.algorithm.name ?? 'grpo');
  return (
    <>
      <Loop />
      <div class="picker">
        <span class="label">
          {tries[0].step === 0 ? 'Before training' : `Step ${tries[0].step}`}, problem {groups.indexOf(chosen) + 1} of{' '}
          {Math.max(groups.length, configOf(tries[0].step)?.data.trainBatchSize ?? 0)}
        </span>
        <span class="choices">
          {n > FEW && (
            <button type="button" class="more" aria-expanded={all.value} onClick={() => (all.value = !all.value)}>
              {all.value ? 'Show best and worst only' : `Show all ${n} tries`}
            </button>
          )}
          <button type="button" class="follow" aria-disabled={!isHeld.value} onClick={followAgain}>
            {isHeld.value ? 'Back to live' : 'Live'}
          </button>
        </span>
        <Picker
          groups={groups}
          chosen={chosen}
          expected={problemsExpected(tries)}
          triesEach={configOf(tries[0].step)?.rollout.n ?? 0}
        />
      </div>
      <Problem key={`${tries[0].step} ${chosen.group}`} shown={chosen.tries[0]} />
      <Columns group={chosen} />
      <p class="teaches">{whatItTeaches(chosen, triesExpected(chosen), active.value, method)}</p>
      <List group={chosen} all={all.value} />
    </>
  );
}

/** True if more tries of the step will arrive. */
const isGrowing = (step: number): boolean => growing.value && step === newestTries.value.at(0)?.step;

/** Returns the config of the run. Without a run, returns that of the form. */
function configOf(step: number) {
  const checked = form.checked.value;
  return step === 0 && !active.value && 'config' in checked ? checked.config : config.value;
}

/**
 * Returns the number of problems that will have tries, for a step that is still in progress and for the untrained model's tries (step 0);
 * otherwise 0.
 */
const problemsExpected = ([{ step }]: readonly LoggedRollout[]): number =>
  step === 0 || isGrowing(step) ? (configOf(step)?.data.trainBatchSize ?? 0) : 0;

/** Returns the number of tries that a problem gets. The untrained model's tries can end early. */
const triesExpected = ({ tries: [{ step }, ...rest] }: Group): number =>
  (step > 0 || isGrowing(step) ? configOf(step)?.rollout.n : undefined) ?? 1 + rest.length;

function followAgain(): void {
  if (!isHeld.peek()) return;
  looked.value = undefined;
  showNewest();
}

/** Returns the picked group, otherwise the group whose tries differ the most. While the tries of a step arrive, returns the first group. */
function useChosen(tries: readonly LoggedRollout[], groups: readonly Group[]): Group | undefined {
  const last = useRef({ step: NaN, group: NaN });
  if (groups.length === 0) return undefined;
  const { step } = tries[0];
  const find = (wanted: number | undefined) => groups.find(({ group }) => group === wanted);
  const first = () => (last.current.step === step ? find(last.current.group) : undefined);
  const chosen = find(pickedGroup.value) ?? (isCompared(tries) ? mostTelling(groups) : (first() ?? groups[0]));
  last.current = { step, group: chosen.group };
  return chosen;
}

function Problem({ shown: { messages, promptMessages, answer } }: { shown: LoggedRollout }) {
  return (
    <div class="problem">
      {messages.slice(0, promptMessages).map((message, i) => (
        <p key={i} class="question">
          {message.content}
        </p>
      ))}
      {answer !== '' && (
        <p class="answer">
          Correct answer: <b>{answer}</b>
        </p>
      )}
    </div>
  );
}

/** A list of tries. The key of an element is its place in the list, so that the next step does not move a focused element. */
function List({ group, all }: { group: Group; all: boolean }) {
  const place = useRef<HTMLDivElement>(null);
  useHoldWhileMarked(place, group.group);
  const room = useSignal(MORE);
  useEffect(() => {
    if (!all) room.value = MORE;
  }, [all]);
  const sorted = bestFirst(group);
  const shown = all || sorted.length <= FEW ? sorted.slice(0, room.value) : [sorted[0], sorted[sorted.length - 1]];
  const numbers = new Map(group.tries.map((one, i) => [one, i + 1]));
  const left = all ? sorted.length - shown.length : 0;
  // On a phone tries lie side by side. Without a button inside, keys could not scroll them.
  const scrolls = shown.some((one) => tokensOf(one))
    ? {}
    : { tabIndex: 0, role: 'group' as const, 'aria-label': 'Tries' };
  return (
    <div class="tries" ref={place} {...scrolls}>
      {shown.map((one, i) => (
        <Try key={i} shown={one} place={numbers.get(one)!} />
      ))}
      {left > 0 && <Further left={left} onMore={() => (room.value += MORE)} />}
    </div>
  );
}

/** The button at the end of an incomplete list. More tries are created when the button is pressed or comes near the screen. */
function Further({ left, onMore }: { left: number; onMore: () => void }) {
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    const near = new IntersectionObserver(([{ isIntersecting }]) => isIntersecting && onMore(), {
      rootMargin: '400px',
    });
    near.observe(button.current!);
    return () => near.disconnect();
  }, [left]);
  return (
    <button type="button" class="more" ref={button} onClick={onMore}>
      Show {left} more
    </button>
  );
}

/** Stops following the run while text of a try is selected. */
function useHoldWhileMarked(place: { current: HTMLElement | null }, group: number): void {
  useEffect(() => {
    const onChange = () => {
      const selection = getSelection();
      if (!selection || selection.isCollapsed || !place.current?.contains(selection.anchorNode)) return;
      hold('nothing', group);
    };
    document.addEventListener('selectionchange', onChange);
    return () => document.removeEventListener('selectionchange', onChange);
  }, [group]);
}
