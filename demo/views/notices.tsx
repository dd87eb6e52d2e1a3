/** The notices, and the adapter's name in the header. */

import { reloadPage } from '../actions/controller.ts';
import { restoreRules } from '../actions/rules.ts';
import { missing } from '../state/missingParts.ts';
import { adapter, complain, deleted, message, notSaved } from '../state/notices.ts';
import { otherTabs } from '../state/otherTabs.ts';
import { history, shownRun } from '../state/page.ts';
import { asked, inForceSince } from '../state/rules.ts';
import { active, offer } from '../state/stage.ts';
import type { RuleKind } from '../../src/extensions/modules/index.ts';
import { RULE_KINDS } from '../storage/runChanges.ts';

/** Shows the current notices. */
export function Notices() {
  const [news, unsaved, offered] = [message.value, notSaved.value, offer.value];
  const kinds = RULE_KINDS.filter((kind) => asked.value[kind]);
  const isMissing = missing.value;
  return (
    <>
      {isMissing && (
        <div class="notice error missing">
          <span>
            <b>{`${isMissing.title} `}</b>
            {`${isMissing.text} ${whatIsKept()}`.trim()}
          </span>
          <span class="choices">
            <button type="button" onClick={() => void reloadPage()}>
              Reload
            </button>
          </span>
        </div>
      )}
      {news && (
        <div class={`notice ${news.kind === 'error' ? 'error' : ''}`}>
          {news.title && <b>{news.title} </b>}
          {news.text}
        </div>
      )}
      {otherTabs.value > 0 && (
        <div class="notice warning">
          {active.value
            ? 'Another tab is training too. Both share the GPU and run slower.'
            : 'Another tab is training. A run started here would share its GPU.'}
        </div>
      )}
      {kinds.length > 0 && (
        <div class="notice warning replaced">
          <span>
            <b>{kinds.map(sinceWhen).join(' ')}</b>
          </span>
          <span class="choices">
            <button type="button" onClick={() => void restoreRules(kinds).catch(complain)}>
              Undo
            </button>
          </span>
        </div>
      )}
      {unsaved !== undefined && (
        <div class="notice warning">
          <b>Not saved. </b>
          {unsaved}
        </div>
      )}
      {deleted.value.length > 0 && (
        <div class="notice">
          <span>{`The page deleted its oldest saved runs: ${deleted.value.join(', ')}.`}</span>
          <span class="choices">
            <button type="button" onClick={() => (deleted.value = [])}>
              Close
            </button>
          </span>
        </div>
      )}
      {offered && (
        <div class="notice offer">
          <span>{offered.text}</span>
          <span class="choices">
            {Object.entries(offered.choices).map(([label, choose]) => (
              <button type="button" key={label} onClick={choose}>
                {label}
              </button>
            ))}
          </span>
        </div>
      )}
    </>
  );
}

/** Says what a reload does to the run on the screen. */
function whatIsKept(): string {
  if (active.value && notSaved.value !== undefined) return 'A reload ends the run, which is not saved.';
  if (active.value) return 'The run is saved first, and can be resumed afterwards.';
  return history.value.length > 0 && shownRun.value !== undefined ? 'The run is saved.' : '';
}

/** Says which rule is replaced, and since which step. */
function sinceWhen(kind: RuleKind): string {
  const since = inForceSince(kind);
  const { name } = asked.value[kind]!;
  if (!active.value) return `The next run starts with another ${kind}: ${name}.`;
  const when = since === undefined ? 'from the next step' : `at step ${since}`;
  return `${kind[0].toUpperCase()}${kind.slice(1)} changed ${when}: ${name}.`;
}

/** Shows the adapter's name. */
export function Adapter() {
  const found = adapter.value;
  const name = found === null ? 'No GPU' : (found?.name ?? 'Looking for a GPU...');
  return (
    <span id="adapter" data-software={found ? String(found.isSoftware) : undefined}>
      {found?.isSoftware ? (
        <>
          <b>Software adapter:</b> {`${name} on the CPU, much slower than a GPU.`}
        </>
      ) : (
        name
      )}
    </span>
  );
}
