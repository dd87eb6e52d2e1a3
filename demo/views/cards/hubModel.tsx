/** The card for a model of the Hugging Face Hub. It is looked up on a click, and downloaded when the run starts. */

import { useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { totalBytes } from '../../../src/workers/memoryPlan.ts';
import { openRecipe } from '../../actions/controller.ts';
import { type Offered, lookUp } from '../../actions/hubModel.ts';
import { hub } from '../../state/address/visit.ts';
import { memoryInWords } from '../../state/estimate.ts';
import { DEFAULT_RECIPE } from '../../state/recipes.ts';

const inMib = (bytes: number): string => memoryInWords(bytes / 2 ** 20);
const millions = (n: number): string =>
  n < 1e9 ? `${Math.round(n / 1e5) / 10} million` : `${(n / 1e9).toFixed(1)} billion`;

/** The form and the result of looking up a model. */
export function HubModel() {
  const name = useSignal('');
  const found = useSignal<Offered | 'asking' | { problem: string } | undefined>(undefined);
  const calls = useRef(0);
  const ask = async (event: Event) => {
    event.preventDefault();
    const call = ++calls.current;
    found.value = 'asking';
    const answer = await lookUp(name.value.trim(), hub).catch((error: Error) => ({ problem: error.message }));
    if (call === calls.current) found.value = answer; // ignores the answer for an earlier name
  };
  const now = found.value;
  return (
    <form class="hub" onSubmit={(event) => void ask(event)}>
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
      <div aria-live="polite">
        {now === 'asking' && <p class="note">Asking the Hub...</p>}
        {typeof now === 'object' && 'problem' in now && <p class="field-problem">{now.problem}</p>}
        {typeof now === 'object' && 'plan' in now && <Found found={now} />}
      </div>
    </form>
  );
}

function Found({ found }: { found: Offered }) {
  const { name, parameters, bytes, plan, largestBuffer, changes } = found;
  const isTaken = useSignal(false);
  const take = async () => {
    await openRecipe(DEFAULT_RECIPE, changes);
    isTaken.value = true;
    const address = new URLSearchParams([
      ['config', DEFAULT_RECIPE],
      ...changes,
      ...(hub === undefined ? [] : [['hub', hub]]),
    ]);
    window.history.replaceState(window.history.state, '', `?${address.toString()}`);
  };
  const largest = plan.toSorted((a, b) => b.bytes - a.bytes).slice(0, 3);
  const facts = {
    Parameters: millions(parameters),
    Download: `${inMib(bytes)}, stored in the browser`,
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
        <p>{`Settings filled in for ${name}. Start downloads it and trains LoRA adapters on word problems.`}</p>
      ) : (
        <button type="button" onClick={() => void take()}>
          Use this model
        </button>
      )}
    </>
  );
}
