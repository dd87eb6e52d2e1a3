/** The card for a model of the Hugging Face Hub, looked up on a click and downloaded when the run starts; or for a GGUF file. */

import { useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { totalBytes } from '../../../src/workers/memoryPlan.ts';
import { openRecipe } from '../../actions/controller.ts';
import { type Offered, keepFile, lookUp } from '../../actions/hubModel.ts';
import { watchRecorded } from '../../recorded/recorded.ts';
import type { RecordedName } from '../../recorded/recording.ts';
import { hub } from '../../state/address/visit.ts';
import { memoryInWords } from '../../state/estimate.ts';
import { complain } from '../../state/notices.ts';
import { DEFAULT_RECIPE } from '../../state/recipes.ts';
import { form } from '../../state/settings/settings.ts';

/** Recorded runs of models from the Hub, and what the model learns in each, as words. */
const WATCHED: Partial<Record<RecordedName, string>> = {
  'past-tense-smollm2-135m': 'past tenses',
  'calculator-smollm2-135m': 'to call a calculator',
};

const inMib = (bytes: number): string => memoryInWords(bytes / 2 ** 20);
const millions = (n: number): string =>
  n < 1e9 ? `${Math.round(n / 1e5) / 10} million` : `${(n / 1e9).toFixed(1)} billion`;

/** The form in which a visitor looks up a model, and the result. */
export function HubModel() {
  const name = useSignal('');
  const found = useSignal<Offered | string | { problem: string } | undefined>(undefined);
  const calls = useRef(0);
  const show = async (wait: string, answered: Promise<Offered>) => {
    const call = ++calls.current;
    found.value = wait;
    const answer = await answered.catch((error: Error) => ({ problem: error.message }));
    if (call === calls.current) found.value = answer; // ignores the answer for an earlier name
  };
  const ask = (event: Event) => {
    event.preventDefault();
    void show('Asking the Hub...', lookUp(name.value.trim(), hub));
  };
  const take = (files: FileList | null | undefined) => {
    const [file] = files ?? [];
    if (file) void show(`Reading ${file.name}...`, keepFile(file));
  };
  const [now, checked] = [found.value, form.checked.value];
  return (
    <form
      class="hub"
      onSubmit={ask}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        take(event.dataTransfer?.files);
      }}
    >
      <label for="hub-name">Model name on the Hub</label>
      <div class="hub-row">
        <input
          id="hub-name"
          placeholder="HuggingFaceTB/SmolLM2-135M-Instruct"
          autocomplete="off"
          spellcheck={false}
          value={name.value}
          onInput={(event) => (name.value = event.currentTarget.value)}
        />
        <button type="submit" disabled={name.value.trim() === ''}>
          Look up
        </button>
      </div>
      <label class="file">
        Or choose a .gguf file
        <input
          type="file"
          accept=".gguf"
          onChange={({ currentTarget: input }) => {
            take(input.files);
            input.value = '';
          }}
        />
      </label>
      <p class="note recordings">
        Watch SmolLM2-135M-Instruct learn (recorded):
        {Object.entries(WATCHED).map(([recipe, what]) => (
          <button key={recipe} type="button" onClick={() => void watchRecorded(recipe as RecordedName)}>
            {what}
          </button>
        ))}
      </p>
      <div aria-live="polite">
        {now === undefined && !form.wantsModel.value && 'config' in checked && (
          <p class="note">{`The next run trains ${checked.config.model.path}.`}</p>
        )}
        {typeof now === 'string' && <p class="note">{now}</p>}
        {typeof now === 'object' && 'problem' in now && <p class="field-problem">{now.problem}</p>}
        {typeof now === 'object' && 'plan' in now && <Found found={now} />}
      </div>
    </form>
  );
}

function Found({ found }: { found: Offered }) {
  const { name, parameters, bytes, isKept, plan, largestBuffer, changes } = found;
  const isTaken = useSignal(false);
  const take = async () => {
    await openRecipe(DEFAULT_RECIPE, changes);
    isTaken.value = true;
  };
  const largest = plan.toSorted((a, b) => b.bytes - a.bytes).slice(0, 3);
  const facts = {
    Parameters: millions(parameters),
    [isKept ? 'File' : 'Download']: `${inMib(bytes)}, stored in the browser`,
    'GPU memory': `${inMib(totalBytes(plan))}: ${largest.map((item) => `${item.name} ${inMib(item.bytes)}`).join(', ')} and smaller parts`,
    'This adapter': `largest buffer ${inMib(largestBuffer)}. Browsers do not report the amount of GPU memory.`,
  };
  return (
    <>
      <dl class="hub-facts">
        {Object.entries(facts).map(([label, value]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {isTaken.value ? (
        <p>{`Settings filled in for ${name}. Start ${isKept ? 'reads' : 'downloads'} it and trains LoRA adapters on word problems.`}</p>
      ) : (
        <button type="button" onClick={() => void take().catch(complain)}>
          Use this model
        </button>
      )}
    </>
  );
}
