/** Writes changed settings to the address bar, and creates links to the run that is shown. */

import { effect } from '@preact/signals';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { fetchConfig } from '../engine/configs.ts';
import { player } from '../recorded/recorded.ts';
import { linkOf, writeAddress } from '../state/address/address.ts';
import { settingsOf } from '../state/address/settingsOf.ts';
import { hub } from '../state/address/visit.ts';
import { measured } from '../state/measured.ts';
import { complain } from '../state/notices.ts';
import { config, history, stepsDone, trainedOn } from '../state/page.ts';
import { DEFAULT_RECIPE, recipeOf } from '../state/recipes.ts';
import { record } from '../state/rules.ts';
import { shown } from '../state/runs.ts';
import { form, formIsReady, YOUR_MODEL } from '../state/settings/settings.ts';
import { shared } from '../state/stage.ts';
import { comparison } from '../state/tries/comparison.ts';

/** Milliseconds to wait for further changes before the address is rewritten. Browsers block a page that does so at every keystroke. */
const WAIT_MS = 300;

/** Keeps the address bar up to date with the settings of the form. */
export function followSettings(): void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  effect(() => {
    const [recipe, checked, wantsModel] = [form.recipe.value, form.checked.value, form.wantsModel.value];
    clearTimeout(timer);
    // A shared result stays unchanged while it is viewed.
    if (!formIsReady.value || !recipe || shared.value) return;
    const write = async () => {
      const now = form.checked.peek();
      const settings = 'config' in now ? await settingsFor(now.config) : new URLSearchParams({ config: YOUR_MODEL });
      if (form.checked.peek() === now) writeAddress(settings);
    };
    if (wantsModel || 'config' in checked) timer = setTimeout(() => void write().catch(complain), WAIT_MS);
  });
}

/** Returns the address parameters for a config: its differences from the recipe with the config's name, or from the default recipe. */
async function settingsFor(of: TrainConfig): Promise<URLSearchParams> {
  const opened = form.recipe.value;
  if (opened && opened.name === of.name) return settingsOf(of, opened.name, opened.text);
  const name = recipeOf(of.name) ? of.name : DEFAULT_RECIPE;
  return settingsOf(of, name, await fetchConfig(name));
}

/** Returns a link to the shown run with its result. Without a run, returns a link to the settings of the form. */
export async function currentLink(): Promise<string> {
  const of = config.value;
  if (!of || history.value.length === 0) {
    const { value } = form.checked;
    return 'config' in value ? linkOf(await settingsFor(value.config), hub) : location.href;
  }
  const { encodeResult } = await import('../state/address/share.ts');
  const { seconds, trainedTokens } = shared.value ?? measured(history.value);
  const result = {
    ...{ history: [...history.value], adapter: nameOfAdapter(), seconds, trainedTokens },
    comparison: shared.value ? shared.value.comparison : comparison.value,
    changes: record.value.filter(({ step }) => step <= stepsDone.value),
  };
  const run = shared.value ? undefined : shown.value;
  return linkOf(await settingsFor(of), run ? run.record.hub : hub, await encodeResult(result));
}

const nameOfAdapter = (): string => player.value?.recording.adapter ?? trainedOn.value ?? '';
