/** One saved run. */

import { useSignal } from '@preact/signals';
import type { TrainConfig } from '../../../src/grpo/config/types.ts';
import { diagnose, discard, fork, goOn, rename, save, type Saved, show } from '../../actions/runs.ts';
import { history, shownRun } from '../../state/page.ts';
import { changeWords, configOf } from '../../state/changeWords.ts';
import { taskTitle } from '../../state/recipes.ts';
import { comparedWith, MOST_OVERLAID, others, overlaid, runs, titleOf, toggleOverlay } from '../../state/runs.ts';
import type { SavedRun } from '../../storage/savedRuns.ts';
import { Sparkline } from './sparkline.tsx';
import { active } from '../../state/stage.ts';

/** Number of changes that a row shows. The others are folded. */
const MOST_CHANGES = 3;

/** Shows a saved run. */
export function RunRow({ run }: { run: SavedRun }) {
  const isShown = shownRun.value === run.id;
  const lines = isShown ? history.value : run.history;
  const config = configOf(run);
  const slot = others.value.find(({ id }) => id === run.id)?.slot;
  const done = lines.at(-1)?.['training/global_step'] ?? 0;
  const isFull = overlaid.value.length >= MOST_OVERLAID && !overlaid.value.includes(run.id);
  return (
    <li class={isShown ? 'shown' : ''} aria-current={isShown ? 'true' : undefined}>
      <div class="run-head">
        <Name run={run} />
        <label class="tick">
          {slot !== undefined && <i class="swatch" style={{ background: `var(--run-${slot})` }} />}
          <input
            type="checkbox"
            aria-label={`Compare the curves of ${titleOf(run)}`}
            checked={overlaid.value.includes(run.id)}
            disabled={isShown || isFull}
            onChange={() => toggleOverlay(run.id)}
          />
        </label>
      </div>
      <p class="note">
        {[when(run), config && taskTitle(config), forkWords(run), settingsSince(run), isShown && 'shown']
          .filter(Boolean)
          .join(' \u00b7 ')}
      </p>
      <div class="run-facts">
        <span>{`${done} of ${config?.trainer.totalTrainingSteps ?? '?'} steps`}</span>
        <Sparkline history={lines} />
      </div>
      <Changes config={config} before={comparedWith(run)} />
      <Actions run={run} isShown={isShown} />
    </li>
  );
}

const when = ({ record: { started } }: SavedRun): string =>
  new Date(started).toLocaleString('en-GB', { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' });

function forkWords({ record: { forkedFrom } }: SavedRun): string {
  if (!forkedFrom) return '';
  const parent = runs.value.find(({ id }) => id === forkedFrom.id);
  return `fork from step ${forkedFrom.step} of ${parent ? titleOf(parent) : 'a deleted run'}`;
}

const settingsSince = ({ record: { changedAfter } }: SavedRun): string =>
  changedAfter === undefined ? '' : `other settings up to step ${changedAfter}`;

function Name({ run }: { run: SavedRun }) {
  return (
    <input
      class="run-name"
      aria-label="Name of the run"
      defaultValue={titleOf(run)}
      maxLength={80}
      onChange={({ currentTarget }) => currentTarget.value.trim() !== '' && rename(run, currentTarget.value)}
      onKeyDown={({ key, currentTarget }) => key === 'Enter' && currentTarget.blur()}
    />
  );
}

function Changes({ config, before }: { config: TrainConfig | undefined; before: SavedRun | undefined }) {
  if (!config) return <span class="note">Settings from another version</span>;
  if (!before) return <span class="note">first run</span>;
  const changes = changeWords(before.config, config);
  if (changes.length === 0) return <span class="note">{`same settings as ${titleOf(before)}`}</span>;
  const more = changes.slice(MOST_CHANGES);
  return (
    <ul class="changes" title={`Compared with ${titleOf(before)}`}>
      {changes.slice(0, MOST_CHANGES).map((change) => (
        <li key={change}>{change}</li>
      ))}
      {more.length > 0 && (
        <li key="more">
          <details>
            <summary>{`${more.length} more`}</summary>
            {more.join('; ')}
          </details>
        </li>
      )}
    </ul>
  );
}

const FILES: Record<Saved, string> = {
  run: 'Run (.zip, opens here and in the command line)',
  model: 'Model (.zip, Hugging Face layout)',
  gguf: 'Model (.gguf, for llama.cpp)',
  report: 'Report (.html)',
};

function Actions({ run, isShown }: { run: SavedRun; isShown: boolean }) {
  const [asked, diagnosis] = [useSignal(false), useSignal('')];
  const trains = isShown && active.value;
  const name = titleOf(run);
  if (asked.value)
    return (
      <div class="run-actions">
        <span>Delete permanently?</span>
        <button type="button" onClick={() => discard(run)}>
          Delete
        </button>
        <button type="button" onClick={() => (asked.value = false)}>
          Cancel
        </button>
      </div>
    );
  return (
    <div class="run-actions">
      <button type="button" aria-label={`Show ${name}`} disabled={isShown} onClick={() => show(run)}>
        Show
      </button>
      {!run.record.finished && (
        <button type="button" aria-label={`Resume ${name}`} disabled={active.value} onClick={() => goOn(run)}>
          Resume
        </button>
      )}
      <button
        type="button"
        aria-label={`Fork ${name}`}
        disabled={run.step === 0}
        title={
          run.step === 0 ? 'No checkpoint yet' : `Forks after step ${run.step}. Use the slider for an earlier step.`
        }
        onClick={() => fork(run, run.step)}
      >
        Fork
      </button>
      <details class="row-menu save">
        <summary aria-label={`Save ${name} as a file`}>Save</summary>
        <div>
          {Object.entries(FILES).map(([what, label]) => (
            <button
              type="button"
              key={what}
              disabled={run.step === 0 && (what === 'model' || what === 'gguf')}
              onClick={() => save(run, what as Saved)}
            >
              {label}
            </button>
          ))}
        </div>
      </details>
      <details
        class="row-menu why"
        onToggle={({ currentTarget }) => currentTarget.open && diagnose(run, (text) => (diagnosis.value = text))}
      >
        <summary aria-label={`Why ${name} does not learn`}>Why?</summary>
        <p class="diagnosis">{diagnosis.value}</p>
      </details>
      <button type="button" aria-label={`Delete ${name}`} disabled={trains} onClick={() => (asked.value = true)}>
        Delete
      </button>
    </div>
  );
}
