/** The saved runs: the changes of each, its curve, buttons to overlay or show it, and its other actions. */

import { useComputed, useSignal } from '@preact/signals';
import { load } from '../../actions/runs.ts';
import { runs } from '../../state/runs.ts';
import { RunRow } from './runRow.tsx';
import './runs.css';

/** The table of saved runs. */
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
      <div class="runs-head">
        <h2>Runs</h2>
        <LoadButtons />
      </div>
      {any.value ? <RunTable /> : <p class="empty">Runs are saved here while they train, only in this browser.</p>}
    </div>
  );
}

function RunTable() {
  return (
    <>
      <p class="note">
        Tick runs to overlay their curves. "Changes" compares with the previous run, or with the run it was forked from.
      </p>
      <div class="runs-scroll">
        <table>
          <thead>
            <tr>
              <th scope="col">Overlay</th>
              <th scope="col">Run</th>
              <th scope="col">Steps</th>
              <th scope="col">Curve</th>
              <th scope="col">Changes</th>
              <th scope="col">
                <span class="heard">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {runs.value.map((run, i) => (
              <RunRow key={run.id} run={run} before={comparedWith(run.record.forkedFrom?.id, i)} />
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

/** The run that it branched off, otherwise the previous one. */
const comparedWith = (parent: string | undefined, place: number) =>
  runs.value.find(({ id }) => id === parent) ?? runs.value[place + 1];

function LoadButtons() {
  const chosen = ({ currentTarget: input }: { currentTarget: HTMLInputElement }) => {
    if (input.files && input.files.length > 0) load([...input.files]);
    input.value = '';
  };
  return (
    <div class="runs-load">
      <label class="file">
        Load a .zip
        <input type="file" accept=".zip,application/zip" onChange={chosen} />
      </label>
      <label class="file">
        Load a folder
        <input type="file" {...{ webkitdirectory: true }} onChange={chosen} />
      </label>
    </div>
  );
}
