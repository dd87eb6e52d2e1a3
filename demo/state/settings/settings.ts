/** Settings of the next run: filled from the recipe and the address, changed in the form, converted back to a config. */

import { batch, computed, signal } from '@preact/signals';
import { parse } from 'yaml';
import { parseTrainConfig } from '../../../src/extensions/yaml/index.ts';
import { valueAt } from '../../../src/grpo/config/tree.ts';
import type { TrainConfig } from '../../../src/grpo/config/types.ts';
import { ConfigError, InputError } from '../../../src/errors.ts';
import { FIELDS, type FieldName, ownLoss } from './fields.ts';
import { refuseBeyondPage } from './limits.ts';

type Values = Readonly<Record<FieldName, string>>;

/** Result of checking the form: a config, or a problem with the field that causes it. */
export type Checked =
  | { config: TrainConfig; notes: readonly string[] }
  | { problem: string; field: FieldName | undefined };

/** A recipe with the YAML text of configs/<name>.yaml, or of a run's config.yaml. */
interface Recipe {
  name: string;
  text: string;
  /** Overrides from the address: `task=...`, and `set=key=value` for any config key without a field. */
  overrides: readonly string[];
}

/** The settings form: its recipe, its values, and the result of checking them. */
export class Settings {
  /** Undefined until `open`. */
  readonly recipe = signal<Recipe | undefined>(undefined);
  /** The unchanged recipe. */
  readonly own = signal<TrainConfig | undefined>(undefined);
  /** The recipe's value of each field; `loss` is empty if it follows from the algorithm. */
  readonly defaults = signal<Values>(EMPTY);
  readonly values = signal<Values>(EMPTY);
  readonly checked = computed<Checked>(() => this.#check());
  /** True while the visitor has chosen to train an own model, but has not named the model yet. */
  readonly wantsModel = signal(false);
  /** The chosen task: the name of a recipe, or YOUR_MODEL. The cards, the form, the address and Start read it. */
  readonly chosen = computed(() => {
    const { name, overrides = [] } = this.recipe.value ?? {};
    if (this.wantsModel.value || overrides.some((text) => text.startsWith('model.path='))) return YOUR_MODEL;
    return name === 'config.yaml' ? this.own.value?.name : name; // a run's settings name its recipe
  });
  /** Id of the saved run that the settings belong to. The form can change them before the run is resumed. */
  run: string | undefined;

  /** Loads a recipe with the changes of the address. Throws InputError. */
  open(text: string, name: string, address = new URLSearchParams()): void {
    const own = parseTrainConfig(text, { source: name, note: () => {} });
    const written = parse(text) as unknown;
    const sets = address.getAll('set');
    const setOf = (key: string) => sets.findLast((text) => text.startsWith(`${key}=`))?.slice(key.length + 1);
    const others = sets.filter((text) => !FIELDS.some(({ key }) => text.startsWith(`${key}=`)));
    const overrides = [...address.getAll('task').map(taskOverride), ...others];
    batch(() => {
      this.own.value = own;
      this.defaults.value = valuesBy((field, key) =>
        field === 'loss' ? textOf(valueAt(written, key) ?? '') : textOf(valueAt(own, key)),
      );
      this.values.value = valuesBy((field, key) => setOf(key) ?? address.get(field) ?? this.defaults.value[field]);
      this.recipe.value = { name, text, overrides };
      [this.wantsModel.value, this.run] = [false, undefined];
    });
  }

  /** Returns a function that restores the current settings. */
  keep(): () => void {
    const { own, defaults, values, recipe, run } = this;
    const [itsOwn, itsDefaults, itsValues, itsRecipe] = [own.value, defaults.value, values.value, recipe.value];
    return () =>
      batch(() => {
        [own.value, defaults.value, values.value, recipe.value] = [itsOwn, itsDefaults, itsValues, itsRecipe];
        this.run = run;
      });
  }

  change(field: FieldName, value: string): void {
    this.values.value = { ...this.values.value, [field]: value };
  }

  /** Returns the config of the run in the form. Throws InputError. */
  config(): TrainConfig {
    const { value } = this.checked;
    if ('config' in value) return value.config;
    throw new InputError(value.problem);
  }

  #check(): Checked {
    const { recipe, values, defaults } = this;
    if (!recipe.value) return { problem: '', field: undefined };
    if (this.wantsModel.value) return { problem: NO_MODEL, field: undefined };
    const { name, text, overrides } = recipe.value;
    const changed = FIELDS.flatMap(({ name: field, key }) => {
      const typed = values.value[field].trim();
      // A run's settings name their loss, so the default has to replace it.
      const value =
        field === 'loss' && typed === '' && defaults.value.loss !== '' ? ownLoss(values.value.algorithm) : typed;
      return value === '' || value === defaults.value[field] ? [] : [{ field, text: `${key}=${value}` }];
    });
    const notes: string[] = [];
    const all = [...changed.map((override) => override.text), ...overrides];
    try {
      const options = { source: name, overrides: all, note: (sentence: string) => void notes.push(sentence) };
      const config = parseTrainConfig(text, options);
      refuseBeyondPage(config, name);
      return { config, notes };
    } catch (error) {
      return inPlainWords(error as Error);
    }
  }
}

/** Name that stands for the visitor's own model, on the cards and in the address. It is used like the name of a recipe. */
export const YOUR_MODEL = 'your-model';

const NO_MODEL = 'No model is chosen. Look one up or choose a .gguf file, then press "Use this model".';

const EMPTY: Values = { steps: '', n: '', lr: '', algorithm: '', loss: '', seed: '' };

const valuesBy = (valueOf: (field: FieldName, key: string) => string): Values =>
  Object.fromEntries(FIELDS.map(({ name, key }) => [name, valueOf(name, key)])) as Record<FieldName, string>;

const textOf = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value));

/** `task=countdown` is a shipped task; `task=./mine.js` and `task=https://...` are modules. */
const taskOverride = (task: string): string =>
  /^[\w-]+$/.test(task) ? `task.name=${task}` : `task.module=${JSON.stringify(task)}`;

/** Converts an error of the config to the form's words: it names the field's label and appears next to the field. */
function inPlainWords(error: Error): Checked {
  if (!(error instanceof ConfigError)) return { problem: error.message, field: undefined };
  const field = FIELDS.find(({ key }) => key === error.path);
  if (!field) return { problem: error.sentence, field: undefined };
  return { problem: error.sentence.replaceAll(`"${field.key}"`, field.label), field: field.name };
}

/** Settings of the next run. */
export const form = new Settings();

/** True once the form has been filled, so that it can start a run. */
export const formIsReady = signal(false);
