/** Button for live work: says how long it takes here, reports progress, and ends the work at once. */

import { useSignal } from '@preact/signals';
import { describe } from '../../../src/errors.ts';
import { duration } from '../../../src/ui/format.ts';
import { keep, progress } from './progress.ts';

interface LiveButtonProps {
  /** Name of the work in the stored times. */
  id: string;
  label: string;
  /** Seconds on two CPU cores, from the first press. */
  coldSeconds: number;
  /** Does the work. Resolves to a sentence about its result. */
  run: (signal: AbortSignal, say: (text: string) => void) => Promise<string>;
  /** Past participle in the message about the end, before "in 3 s". */
  done: string;
  /** Shows the recorded tries again; undefined if they are shown. */
  onRecorded: (() => void) | undefined;
}

/** Shows the button, its progress and the result of the work. */
export function LiveButton({ id, label, coldSeconds, run, done, onRecorded }: LiveButtonProps) {
  const ending = useSignal<AbortController | undefined>(undefined);
  const said = useSignal('');
  const last = progress.value.seconds[id];
  const start = async () => {
    const stop = new AbortController();
    const { signal } = stop;
    ending.value = stop;
    said.value = 'Opening the model...';
    const started = performance.now();
    const say = (text: string) => {
      if (!signal.aborted) said.value = text;
    };
    try {
      const result = await run(signal, say);
      if (signal.aborted) return;
      const seconds = (performance.now() - started) / 1000;
      keep('seconds', id, seconds);
      say(`${done} in ${duration(seconds)}. ${result}`);
    } catch (error) {
      say(`${describe(error)} The recorded tries stay.`);
    } finally {
      if (ending.peek() === stop) ending.value = undefined;
    }
  };
  const end = () => {
    ending.value?.abort();
    ending.value = undefined;
    said.value = 'Stopped.';
  };
  return (
    <>
      {ending.value ? (
        <button type="button" onClick={end}>
          Stop
        </button>
      ) : (
        <button type="button" onClick={() => void start()}>
          {label} ({last === undefined ? `about ${coldSeconds} s on two CPU cores` : `last time ${duration(last)}`})
        </button>
      )}
      {onRecorded && !ending.value && (
        <button type="button" onClick={onRecorded}>
          Show the recorded tries
        </button>
      )}
      <span role="status" class="note">
        {said.value}
      </span>
    </>
  );
}
