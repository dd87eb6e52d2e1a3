/** The recorded run: its description, and the controls to play it. */

import { closeRecorded } from '../../recorded/recorded.ts';
import type { Player } from '../../recorded/player.ts';
import { state } from '../../state/stage.ts';

const SPEEDS = [1, 2, 5, 10];

/** The controls of the recorded run. */
export function Recorded({ player }: { player: Player }) {
  const { commit, adapter, date, command, tries } = player.recording;
  const groups = new Set(tries.filter(({ step }) => step === 1).map(({ group }) => group)).size;
  const { at, playing, speed, lines } = player;
  const step = player.recording.history[Math.max(0, at.value - 1)]['training/global_step'];
  const scrub = (to: number) => {
    [playing.value, at.value] = [false, to];
  };
  return (
    <section class="told" aria-label="Recorded run">
      <p>
        <b>Recorded run. </b>
        Trained on {date} ({adapter}).{' '}
        {groups === 1 ? 'One problem per step was kept.' : 'Two problems per step were kept.'}
      </p>
      <details class="fold">
        <summary>How it was recorded</summary>
        <code>{command}</code>, commit {commit}
      </details>
      <div class="share">
        <button type="button" onClick={() => (playing.value ? (playing.value = false) : player.play())}>
          {playing.value ? 'Pause' : at.value === lines ? 'Play again' : 'Play'}
        </button>
        <label class="scrub">
          <span>Step {step}</span>
          <input
            type="range"
            min={1}
            max={lines}
            value={at.value}
            aria-label="Step of the recorded run"
            aria-valuetext={`Step ${step}`}
            onInput={(event) => scrub(event.currentTarget.valueAsNumber)}
          />
        </label>
        <label class="speed">
          Speed
          <select value={speed.value} onChange={(event) => (speed.value = Number(event.currentTarget.value))}>
            {SPEEDS.map((times) => (
              <option key={times} value={times}>
                {`${times} \u00d7`}
              </option>
            ))}
          </select>
        </label>
        {state.value !== 'no-gpu' && (
          <button type="button" onClick={closeRecorded}>
            Close
          </button>
        )}
      </div>
    </section>
  );
}
