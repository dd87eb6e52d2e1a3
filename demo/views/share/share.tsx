/** A link to what is shown, a result from a link, and the recorded run. */

import './share.css';
import { useSignal } from '@preact/signals';
import { copied } from '../../actions/clipboard.ts';
import { plural } from '../../../src/ui/format.ts';
import { currentLink } from '../../actions/addressBar.ts';
import { start } from '../../actions/controller.ts';
import { config, history } from '../../state/page.ts';
import { taskTitle } from '../../state/recipes.ts';
import { changes, changesInWords } from '../../state/rules.ts';
import { player, watchRecorded } from '../../recorded/recorded.ts';
import { putSharedAway } from '../../state/shared.ts';
import { methodOf } from '../../state/settings/fields.ts';
import { formIsReady } from '../../state/settings/settings.ts';
import { Recorded } from './recorded.tsx';
import { measured } from '../../state/measured.ts';
import { Card } from '../result/result.tsx';
import { openEditor } from '../rules/rules.tsx';
import { shared, stage, state } from '../../state/stage.ts';

/** Says where the shown curves come from, if not from a run of this page. */
export function Told() {
  return (
    <>
      <SharedRun />
      {player.value && <Recorded player={player.value} />}
    </>
  );
}

/** The button that copies a link. */
export const Share = () => (
  <div class="share">
    <CopyLink />
  </div>
);

/** Offers to play the recorded run if the visitor has not started a run. */
export function Watch() {
  if (!['idle', 'asking'].includes(stage.value.name)) return null;
  return (
    <button type="button" onClick={() => void watchRecorded()}>
      Watch a recorded run
    </button>
  );
}

const SANDBOX =
  'Code of rules runs in a sandbox without network, storage or access to this page, only if you choose it here.';

/** Closes the shared result, and opens the editor of rules with the result's settings. */
function changeReward(): void {
  putSharedAway();
  openEditor();
}

/** The result card and the curves of a shared run, marked as shared, with buttons to run the settings here. */
function SharedRun() {
  const sent = shared.value;
  const of = config.value;
  if (!sent || !of) return null;
  const minutes = sent.seconds >= 60 ? `${Math.round(sent.seconds / 60)} min` : `${sent.seconds} s`;
  const facts = [
    `${taskTitle(of)}, by ${methodOf(of)}`,
    plural(sent.history.at(-1)!['training/global_step'], 'step'),
    `seed ${of.seed}`,
    ...(sent.seconds > 0 ? [minutes] : []),
    ...(sent.adapter === '' ? [] : [`on ${sent.adapter}`]),
  ];
  const canRepeat =
    sent.changes.length > 0 && sent.changes.every((change) => !('code' in change) || change.code !== '');
  const off = !formIsReady.value || state.value === 'no-gpu';
  return (
    <section class="told" aria-label="Shared run">
      <p>
        <b>Shared run: </b>
        {facts.join(', ')}. The curves come from the link and were not computed here.
      </p>
      {sent.changes.length > 0 && (
        <p class="changed-rules">
          <b>Changed during the run: </b>
          {changesInWords(changes.value)}. {canRepeat ? SANDBOX : 'The rules were too long for the link.'}
        </p>
      )}
      <div class="share">
        {canRepeat && (
          <button type="button" class="primary" disabled={off} onClick={() => void start(undefined, of, sent.changes)}>
            Run it here with these changes
          </button>
        )}
        <button type="button" class={canRepeat ? '' : 'primary'} disabled={off} onClick={() => void start()}>
          {sent.changes.length > 0 ? 'Run it here without them' : 'Run it here'}
        </button>
        <button type="button" onClick={changeReward}>
          Change the reward
        </button>
        <CopyLink />
        <button type="button" onClick={putSharedAway}>
          Close
        </button>
      </div>
      {measured(sent.history).after && <Card />}
    </section>
  );
}

function CopyLink() {
  const said = useSignal('');
  /** The link as text for manual copying, used if the browser forbids access to the clipboard. */
  const byHand = useSignal<string | undefined>(undefined);
  const carries = history.value.length > 0 && config.value ? 'settings and curves' : 'settings';
  const copy = async () => {
    const link = await currentLink();
    const isCopied = await copied((clipboard) => clipboard.writeText(link));
    said.value = isCopied ? `Copied: ${carries}, ${link.length} characters.` : '';
    byHand.value = isCopied ? undefined : link;
  };
  return (
    <>
      <button type="button" disabled={!formIsReady.value && !config.value} onClick={() => void copy()}>
        Copy link
      </button>
      <span class="note" role="status">
        {said.value}
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
