/** Settings that change from the next step on, with their current values. */

import { useSignal } from '@preact/signals';
import type { LiveSettings } from '../../../src/grpo/live.ts';
import { valueAt } from '../../../src/grpo/config/tree.ts';
import { history } from '../../state/page.ts';
import { changeSettings, live, LIVE_FIELDS, whenItApplies } from '../../state/rules.ts';

type Key = (typeof LIVE_FIELDS)[number]['key'];

/** The tab for settings that change during a run. */
export function LiveSettingsTab() {
  const typed = useSignal<Partial<Record<Key, string>>>({});
  const said = useSignal<{ text: string; wrong: boolean } | undefined>(undefined);
  const now = live.value;
  void history.value; // a change takes effect when its step is done
  if (!now) return <p class="note">Start a run to change these.</p>;
  const { config } = now.trainer;
  const hasReference = now.session.engine.reference !== undefined;
  const apply = (event: Event) => {
    event.preventDefault();
    const changed = Object.entries(typed.value).filter(([, text]) => text.trim() !== '');
    const settings = Object.fromEntries(changed.map(([key, text]) => [key, Number(text)])) as LiveSettings;
    try {
      changeSettings(settings);
      said.value = { text: whenItApplies(), wrong: false };
    } catch (error) {
      said.value = { text: (error as Error).message.replace(/^change: /, ''), wrong: true };
    }
  };
  return (
    <form onSubmit={apply}>
      <div class="live">
        {LIVE_FIELDS.map(({ key, label, why }) => (
          <div class="field" key={key}>
            <label for={`live-${key}`}>{label}</label>
            <input
              id={`live-${key}`}
              inputMode="decimal"
              autocomplete="off"
              aria-describedby={`why-${key}`}
              disabled={key === 'actor.klLossCoef' && !hasReference}
              value={typed.value[key] ?? String(valueAt(config, key))}
              onInput={({ currentTarget }) => void (typed.value = { ...typed.value, [key]: currentTarget.value })}
            />
            <small id={`why-${key}`} class="note">
              {key === 'actor.klLossCoef' && !hasReference
                ? 'This run has no reference model. Start a run with a KL coefficient above 0.'
                : `Current: ${String(valueAt(config, key))}. ${why}`}
            </small>
          </div>
        ))}
      </div>
      <div class="row">
        <button type="submit" class="primary">
          Apply
        </button>
        <p role="status" class={`standing ${said.value?.wrong ? 'refused' : ''}`}>
          {said.value?.text}
        </p>
      </div>
    </form>
  );
}
