/** One rule as code: presets, the editor, an error at its line, and the scores that the rule would have given. */

import { signal, useComputed } from '@preact/signals';
import type { RuleKind } from '../../../src/extensions/modules/index.ts';
import { asked, standing } from '../../state/rules.ts';
import { applyOwn, applyRule, tryRule } from '../../actions/openRules.ts';
import { Editor } from './editor.tsx';
import { type Preset, PRESETS } from './presets.ts';
import { Trial } from './trial.tsx';

/** Texts of the editors, which survive a change of tabs. */
const codes = signal<Readonly<Partial<Record<RuleKind, string>>>>({});

const OWN = { reward: "Restore the task's reward", loss: "Restore the run's loss", tool: "Restore the task's tools" };

/** The tab for one kind of rule. */
export function CodeTab({ kind }: { kind: RuleKind }) {
  const newest = useComputed(
    () => codes.value[kind] ?? standing.value[kind]?.code ?? asked.value[kind]?.code ?? PRESETS[kind][0].code,
  );
  const code = newest.value;
  const edit = (to: string) => void (codes.value = { ...codes.value, [kind]: to });
  const take = (chosen: Preset | undefined) => {
    if (!chosen) return;
    edit(chosen.code);
    if (kind === 'reward') void tryRule(kind, chosen); // what it would have paid is shown beside it
  };
  const preset = PRESETS[kind].find((one) => one.code === code);
  const of = { name: preset?.name ?? `custom ${kind}`, code };
  const stands = standing.value[kind];
  const busy = stands?.state === 'checking';
  const text = (
    <div class="stack">
      <div class="row">
        <label for={`rules-preset-${kind}`}>Preset</label>
        <select
          id={`rules-preset-${kind}`}
          value={preset?.name ?? ''}
          onChange={({ currentTarget }) => take(PRESETS[kind].find(({ name }) => name === currentTarget.value))}
        >
          {!preset && <option value="">custom</option>}
          {PRESETS[kind].map(({ name }) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
        <span class="note">{preset?.note}</span>
      </div>
      <Editor label={`Code of the ${kind}`} code={newest} problem={stands} onChange={edit} />
      <div class="row">
        <button type="button" class="primary" disabled={busy} onClick={() => void applyRule(kind, of)}>
          Apply
        </button>
        <button type="button" disabled={busy} onClick={() => void tryRule(kind, of)}>
          Test
        </button>
        {asked.value[kind] && (
          <button type="button" disabled={busy} onClick={() => void applyOwn(kind)}>
            {OWN[kind]}
          </button>
        )}
        <p role="status" class={`standing ${stands?.state ?? ''}`}>
          {stands?.text}
        </p>
      </div>
    </div>
  );
  if (kind !== 'reward') return text;
  return (
    <div class="beside">
      {text}
      <Trial />
    </div>
  );
}
