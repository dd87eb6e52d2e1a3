/** "Break it": replaces the reward of the run by one that can be cheated, after the visitor has guessed what will happen. */

import { useSignal } from '@preact/signals';
import { bet, fall, fallInWords, type Guess } from '../../state/bet.ts';
import { complain } from '../../state/notices.ts';
import { asked } from '../../state/rules.ts';
import { isRecorded, run, stage } from '../../state/stage.ts';
import { CHEATS, type Preset } from './presets.ts';
import { openEditor } from './rules.tsx';

const GUESSES: readonly Guess[] = ['up', 'same', 'down'];

/** Shows the presets, then the question what will happen, then the change in the share of problems solved. */
export function BreakIt() {
  const chosen = useSignal<Preset | undefined>(undefined);
  const busy = useSignal(false);
  if (['asking', 'forking'].includes(stage.value.name) || isRecorded.value) return null;
  if (asked.value.reward) return <Became />;
  const apply = async ({ name, code }: Preset, guess: Guess) => {
    bet.value = { name, guess };
    [chosen.value, busy.value] = [undefined, true];
    try {
      const { applyRule } = await import('../../actions/openRules.ts');
      await applyRule('reward', { name, code });
    } finally {
      busy.value = false;
    }
  };
  if (busy.value) return <p class="break-it">Applying...</p>;
  if (chosen.value) {
    const cheat = chosen.value;
    return (
      <div class="break-it" role="group" aria-label="Your guess">
        <span>
          <b>{cheat.name}: </b>
          {cheat.note} What will happen to share solved?
        </span>
        {GUESSES.map((guess) => (
          <button key={guess} type="button" onClick={() => void apply(cheat, guess).catch(complain)}>
            {guess}
          </button>
        ))}
        <button type="button" onClick={() => void (chosen.value = undefined)}>
          Cancel
        </button>
      </div>
    );
  }
  return (
    <div class="break-it" role="group" aria-label="Break it">
      <b>Break it:</b>
      {CHEATS.map((cheat) => (
        <button key={cheat.name} type="button" onClick={() => void (chosen.value = cheat)}>
          {cheat.name}
        </button>
      ))}
      <button type="button" onClick={openEditor}>
        own code...
      </button>
    </div>
  );
}

/** Shows the visitor's guess, and the measurements so far. */
function Became() {
  const [guessed, moved] = [bet.value?.guess, fall.value];
  const said = guessed === undefined ? '' : `You guessed ${guessed}. `;
  const isRunning = stage.value.name === 'running';
  return (
    <p class="break-it" role="status">
      <span>
        {said}
        {moved ? (
          <b>{fallInWords(moved)}</b>
        ) : isRunning && run.value?.canWatch === false ? (
          "The first comparison follows at the run's next evaluation."
        ) : isRunning ? (
          '32 held-out problems are solved every 5 steps; the first comparison takes a few steps.'
        ) : (
          'Start a run to see.'
        )}
      </span>
    </p>
  );
}
