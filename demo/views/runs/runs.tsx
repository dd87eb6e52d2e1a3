/** The saved runs: the changes of each, its curve, buttons to compare or show it, and its other actions. */

import { useComputed, useSignal } from '@preact/signals';
import { load } from '../../actions/runs.ts';
import { runs } from '../../state/runs.ts';
import { RunRow } from './runRow.tsx';
import './runs.css';

/** The list of saved runs. */
export function Runs() {
  const over = useSignal(false);
  const any = useComputed(() => runs.value.length > 0);
  const drop = (event: DragEvent) => {
    event.preventDefault();
    over.value = false;
    const files = [...(event.dataTransfer?.files ?? [])];
    if (files.length > 0) load(files);
  };
  return (
    <div
      class={`runs ${over.value ? 'over' : ''}`}
      onDragOver={(event) => {
        event.preventDefault();
        over.value = true;
      }}
      onDragLeave={() => (over.value = false)}
      onDrop={drop}
    >
      <p class="note">
        {any.value
          ? 'Newest first. Tick runs to compare their curves.'
          : 'Runs are saved here while they train, only in this browser.'}
      </p>
      <ol class="run-list" aria-label="Saved runs">
        {runs.value.map((run) => (
          <RunRow key={run.id} run={run} />
        ))}
      </ol>
      <LoadButtons />
    </div>
  );
}

function LoadButtons() {
  const chosen = ({ currentTarget: input }: { currentTarget: HTMLInputElement }) => {
    if (input.files && input.files.length > 0) load([...input.files]);
    input.value = '';
  };
  return (
    <div class="runs-load">
      <label class="file">
        Open .zip
        <input type="file" accept=".zip,application/zip" onChange={chosen} />
      </label>
      <label class="file">
        Open folder
        <input type="file" {...{ webkitdirectory: true }} onChange={chosen} />
      </label>
    </div>
  );
}
