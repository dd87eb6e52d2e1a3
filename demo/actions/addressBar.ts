/** Writes changed settings to the address bar, and creates links to the run that is shown. */

import { effect } from '@preact/signals';
import { fetchConfig } from '../engine/configs.ts';
import { player } from '../recorded/recorded.ts';
import { linkOf, writeAddress } from '../state/address/address.ts';
import { settingsOf } from '../state/address/settingsOf.ts';
import { measured } from '../state/measured.ts';
import { adapter } from '../state/notices.ts';
import { config, history, stepsDone } from '../state/page.ts';
import { DEFAULT_RECIPE } from '../state/recipes.ts';
import { record } from '../state/rules.ts';
import { form, formIsReady, YOUR_MODEL } from '../state/settings/settings.ts';
import { shared } from '../state/stage.ts';

/** Milliseconds between changes of the address. Browsers refuse a page that rewrites its address at every letter. */
const WAIT_MS = 300;

/** True if an address can name the recipe. A run's own config is not a recipe. */
const isRecipe = (name: string): boolean => !name.endsWith('.yaml');

/** Keeps the address bar up to date with the settings of the form. */
export function followSettings(): void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  effect(() => {
    const [recipe, checked, wantsModel] = [form.recipe.value, form.checked.value, form.wantsModel.value];
    clearTimeout(timer);
    // A shared result stays unchanged while it is viewed.
    if (!formIsReady.value || !recipe || !isRecipe(recipe.name) || shared.value) return;
    if (wantsModel) timer = setTimeout(() => writeAddress(new URLSearchParams({ config: YOUR_MODEL })), WAIT_MS);
    else if ('config' in checked)
      timer = setTimeout(() => writeAddress(settingsOf(checked.config, recipe.name, recipe.text)), WAIT_MS);
  });
}

/** Returns a link to the shown run with its result. Without a run, returns a link to the settings of the form. */
export async function currentLink(): Promise<string> {
  const of = config.value;
  if (!of || history.value.length === 0) {
    const { recipe, checked } = form;
    if (!('config' in checked.value)) return location.href;
    return linkOf(settingsOf(checked.value.config, recipe.value!.name, recipe.value!.text), undefined);
  }
  const name = await fetchConfig(of.name).then(
    () => of.name,
    () => DEFAULT_RECIPE,
  );
  const { encodeResult } = await import('../state/address/share.ts');
  const { seconds, trainedTokens } = shared.value ?? measured(history.value);
  const result = {
    ...{ history: [...history.value], adapter: nameOfAdapter(), seconds, trainedTokens },
    changes: record.value.filter(({ step }) => step <= stepsDone.value),
  };
  return linkOf(settingsOf(of, name, await fetchConfig(name)), await encodeResult(result));
}

const nameOfAdapter = (): string =>
  shared.value?.adapter ?? player.value?.recording.adapter ?? adapter.value?.name ?? '';
