/** A link to what is shown, a result from a link, and the recorded run. */

import './share.css';
import { useSignal } from '@preact/signals';
import { currentLink } from '../../actions/addressBar.ts';
import { start } from '../../actions/controller.ts';
import { config, history } from '../../state/page.ts';
import { changes, changesInWords } from '../../state/rules.ts';
import { player, watchRecorded } from '../../recorded/recorded.ts';
import { putSharedAway } from '../../state/shared.ts';
import { formIsReady } from '../../state/settings/settings.ts';
import { Recorded } from './recorded.tsx';
import { active, shared, state } from '../../state/stage.ts';

/** Says whose curves are shown, if not those of a run of this page. */
export function Told() {
  return (
    <>
      <SharedRun />
      {player.value && <Recorded player={player.value} />}
    </>
  );
}

/** The buttons to share a run. */
export function Share() {
  return (
    <div class="share">
      <CopyLink />
      {!player.value && !active.value && (
        <button type="button" onClick={() => void watchRecorded()}>
          Watch a recorded run
        </button>
      )}
    </div>
  );
}

/** A shared run's curves, marked as shared, with a button to run it here. */
function SharedRun() {
  const sent = shared.value;
  const of = config.value;
  if (!sent || !of) return null;
  const minutes = sent.seconds >= 60 ? `${Math.round(sent.seconds / 60)} min` : `${sent.seconds} s`;
  const facts = [
    of.algorithm.name,
    of.task.module === undefined ? of.task.name : 'a custom task',
    `${sent.history.at(-1)!['training/global_step']} steps`,
    `seed ${of.seed}`,
    ...(sent.seconds > 0 ? [minutes] : []),
    ...(sent.adapter === '' ? [] : [`on ${sent.adapter}`]),
  ];
  return (
    <section class="told" aria-label="Shared run">
      <p>
        <b>Shared run: </b>
        {facts.join(', ')}. The curves come from the link and were not computed here.
      </p>
      {changes.value.length > 0 && (
        <p class="changed-rules">
          <b>Changed during the run: </b>
          {changesInWords(changes.value)}. "Run it here" trains without these changes.
        </p>
      )}
      <div class="share">
        <button type="button" disabled={!formIsReady.value || state.value === 'no-gpu'} onClick={() => void start()}>
          Run it here
        </button>
        <button type="button" onClick={putSharedAway}>
          Close
        </button>
      </div>
    </section>
  );
}

function CopyLink() {
  const copied = useSignal('');
  /** The link for manual copying, if the browser forbids access to the clipboard. */
  const byHand = useSignal<string | undefined>(undefined);
  const carries = history.value.length > 0 && config.value ? 'settings and curves' : 'settings';
  const copy = async () => {
    const link = await currentLink();
    try {
      await navigator.clipboard.writeText(link);
      [copied.value, byHand.value] = [`Copied: ${carries}, ${link.length} characters.`, undefined];
    } catch {
      [copied.value, byHand.value] = ['', link];
    }
  };
  return (
    <>
      <button type="button" disabled={!formIsReady.value && !config.value} onClick={() => void copy()}>
        Copy link
      </button>
      <span class="note" role="status">
        {copied.value}
      </span>
      {byHand.value !== undefined && (
        <label class="by-hand">
          Copy this link
          <input readOnly value={byHand.value} onFocus={(event) => event.currentTarget.select()} />
        </label>
      )}
    </>
  );
}
