/** The settings of the next run: a summary, the fields that are changed most often, and the others folded. */

import { useSignal } from '@preact/signals';
import type { TrainConfig } from '../../../src/grpo/config/types.ts';
import { plural } from '../../../src/ui/format.ts';
import { costOf } from '../../state/estimate.ts';
import { ALGORITHM_GROUPS, FIRST, MORE, type Field } from '../../state/settings/fields.ts';
import { form } from '../../state/settings/settings.ts';
import './settings.css';
import { active } from '../../state/stage.ts';

/** The settings form. */
export function SettingsForm() {
  const isOpen = useSignal(false);
  const checked = form.checked.value;
  const own = form.own.value;
  if (!own) return null;
  const wrong = 'problem' in checked ? checked : undefined;
  const changed = MORE.some(
    ({ name }) => form.values.value[name] !== form.defaults.value[name] || wrong?.field === name,
  );
  return (
    <>
      {FIRST.map((field) => (
        <SettingField key={field.name} field={field} />
      ))}
      <p class={wrong && !wrong.field ? 'plan wrong' : 'plan'} id="plan" aria-live="polite">
        {'config' in checked ? costOf(checked.config, own) : wrong?.field ? 'One setting is invalid.' : wrong?.problem}
      </p>
      <details
        class="more-settings"
        open={isOpen.value || changed}
        onToggle={(event) => void (isOpen.value = event.currentTarget.open)}
      >
        <summary>More settings</summary>
        <div class="more-grid">
          {MORE.map((field) => (
            <SettingField key={field.name} field={field} />
          ))}
        </div>
        <p class="summary">{'config' in checked && summaryOf(checked.config)}</p>
        <p class="note">{'config' in checked && checked.notes.join(' ')}</p>
      </details>
    </>
  );
}

function SettingField({ field }: { field: Field }) {
  const { name, label, meaning, choices } = field;
  const checked = form.checked.value;
  const problem = 'problem' in checked && checked.field === name ? checked.problem : undefined;
  const [value, byDefault] = [form.values.value[name], form.defaults.value[name]];
  const id = `setting-${name}`;
  const common = {
    id,
    name,
    'aria-invalid': problem !== undefined,
    'aria-describedby': problem === undefined ? `${id}-meaning` : `${id}-problem`,
  };
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {choices ? (
        <select
          {...common}
          value={value}
          disabled={active.value}
          onChange={(event) => form.change(name, event.currentTarget.value)}
        >
          <Choices field={field} value={value} />
        </select>
      ) : (
        <input
          {...common}
          value={value}
          placeholder={byDefault}
          inputMode="decimal"
          autocomplete="off"
          // The fields are not disabled: a disabled field would lose the focus when Enter starts a run.
          readOnly={active.value}
          onInput={(event) => form.change(name, event.currentTarget.value)}
        />
      )}
      {problem !== undefined && (
        <p class="field-problem" id={`${id}-problem`} role="alert">
          {problem}
        </p>
      )}
      <p class="field-meaning" id={`${id}-meaning`}>
        {meaning}
      </p>
    </div>
  );
}

/** Options of a field. The current value is added if it is not among them, because an address can contain any value. */
function Choices({ field: { name, choices = [] }, value }: { field: Field; value: string }) {
  const unknown = !choices.includes(value) && <option value={value}>{value}</option>;
  if (name !== 'algorithm')
    return (
      <>
        {unknown}
        {choices.map((choice) => (
          <option key={choice} value={choice}>
            {choice === '' ? 'default of the algorithm' : choice}
          </option>
        ))}
      </>
    );
  return (
    <>
      {unknown}
      {Object.entries(ALGORITHM_GROUPS).map(([group, algorithms]) => (
        <optgroup key={group} label={group}>
          {Object.entries(algorithms).map(([algorithm, [title, line]]) => (
            <option key={algorithm} value={algorithm}>
              {`${title}: ${line}`}
            </option>
          ))}
        </optgroup>
      ))}
    </>
  );
}

function summaryOf({ actor, algorithm, data, rollout }: TrainConfig): string {
  const { lossAggMode, clipRatioLow, clipRatioHigh, klLossCoef, useKlLoss } = actor;
  const updates = (data.trainBatchSize / actor.ppoMiniBatchSize) * actor.ppoEpochs;
  return [
    `${data.trainBatchSize} problems \u00d7 ${rollout.n} tries a step, ${plural(updates, 'update')}`,
    `loss ${actor.policyLoss.lossMode}, ${lossAggMode}`,
    `clip ${clipRatioLow} / ${clipRatioHigh}`,
    `advantage ${algorithm.advEstimator}`,
    useKlLoss ? `KL ${klLossCoef}` : 'no KL term',
  ].join(' \u00b7 ');
}
