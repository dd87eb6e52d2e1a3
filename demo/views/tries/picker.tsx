/** Selects the problem of the step that is shown. Arrow keys move from problem to problem. */

import { useMemo, useRef } from 'preact/hooks';
import { pickGroup } from '../../state/tries/shown.ts';
import { isJudged, isRight } from '../../state/tries/comparison.ts';
import type { Group } from './groups.ts';

/** Maximum number of tries that are shown as dots. If there are more, a bar is shown. */
const MAX_DOTS = 16;

interface PickerProps {
  groups: readonly Group[];
  chosen: Group;
  /** Number of problems of the step. Problems without tries have a button too, so that no button moves or loses the focus. */
  expected: number;
  /** Number of tries that each problem gets. Buttons have room for their dots, so that no row wraps when tries arrive. */
  triesEach: number;
}

/** The row of problems. */
export function Picker({ groups, chosen, expected, triesEach }: PickerProps) {
  const list = useRef<HTMLDivElement>(null);
  const place = groups.indexOf(chosen);
  const onKeyDown = (event: KeyboardEvent) => {
    const buttons = [...list.current!.querySelectorAll('button')];
    const at = buttons.indexOf(event.target as HTMLButtonElement);
    const to = keyTarget(event.key, at, buttons.length);
    if (to === undefined) return;
    event.preventDefault();
    buttons[to].focus();
  };
  return (
    <div class="groups" role="toolbar" aria-label="Problems of this step" ref={list} onKeyDown={onKeyDown}>
      {Array.from({ length: Math.max(groups.length, expected) }, (_, g) => (
        <Problem key={g} number={g + 1} group={groups[g]} isChosen={g === place} triesEach={triesEach} />
      ))}
    </div>
  );
}

/** Returns the index to which a key moves in a row of `count` buttons; undefined for other keys. */
export function keyTarget(key: string, at: number, count: number): number | undefined {
  const to: Record<string, number> = {
    ArrowRight: at + 1,
    ArrowDown: at + 1,
    ArrowLeft: at - 1,
    ArrowUp: at - 1,
    Home: 0,
    End: count - 1,
  };
  return key in to ? Math.min(Math.max(to[key], 0), count - 1) : undefined;
}

interface ProblemProps {
  number: number;
  /** Tries of the problem; undefined if no try is scored yet. */
  group: Group | undefined;
  isChosen: boolean;
  triesEach: number;
}

/** The button of a problem. It is redrawn only when the problem's tries have changed. */
function Problem({ number, group: shown, isChosen, triesEach }: ProblemProps) {
  const [group, marks] = [shown?.group, (shown?.tries ?? []).filter(isJudged).map(isRight)];
  return useMemo(() => {
    const right = marks.filter(Boolean).length;
    const name = `Problem ${number}${group === undefined ? ': no try is scored yet' : marks.length > 0 ? `: ${right} of ${marks.length} tries correct` : ''}`;
    return (
      <button
        type="button"
        class="group"
        title={name}
        aria-label={name}
        aria-pressed={isChosen}
        aria-disabled={group === undefined}
        tabIndex={isChosen ? 0 : -1}
        onClick={() => group !== undefined && pickGroup(group)}
      >
        {number}
        {marks.length > MAX_DOTS ? (
          <Share of={right / marks.length} />
        ) : (
          <Dots marks={marks} places={triesEach > MAX_DOTS ? 0 : triesEach} />
        )}
      </button>
    );
  }, [number, group, isChosen, triesEach, marks.join()]);
}

/** Draws a filled dot for each right try and an open one for each wrong try, in the width of at least `places` dots. */
function Dots({ marks, places }: { marks: readonly boolean[]; places: number }) {
  const dots = (wanted: boolean, r: number) =>
    marks
      .map((mark, i) =>
        mark === wanted ? `M${i * 8 + 4 - r} 4a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0` : '',
      )
      .join('');
  const width = Math.max(marks.length, places) * 8;
  return (
    <svg class="dots" viewBox={`0 0 ${width} 8`} width={width} height="8" aria-hidden="true">
      <path class="dot-right" d={dots(true, 3.5)} />
      <path class="dot-wrong" d={dots(false, 3)} />
    </svg>
  );
}

function Share({ of }: { of: number }) {
  return (
    <span class="right-share" aria-hidden="true">
      <span style={{ width: `${of * 100}%` }} />
    </span>
  );
}
