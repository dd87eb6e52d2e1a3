/** Settings before a run: a form, filled from the recipe and the address, read back into a config. */

import { parse } from 'yaml';
import type { TrainConfig } from '../src/grpo/config/types.ts';
import { parseTrainConfig } from '../src/grpo/config/text.ts';
import { valueAt } from '../src/grpo/config/tree.ts';
import { POLICY_LOSSES } from '../src/grpo/losses/index.ts';
import { RECIPES } from '../src/grpo/config/recipes.ts';
import { byId, el, setText } from '../src/report/page/dom.ts';

/** Name in the address and in the form, config key, label, and what it is. */
const FIELDS = [
  { name: 'algorithm', key: 'algorithm.name', label: 'Algorithm', choices: Object.keys(RECIPES) },
  { name: 'loss', key: 'actor.policyLoss.lossMode', label: 'Loss', choices: ['', ...Object.keys(POLICY_LOSSES)] },
  { name: 'lr', key: 'actor.optim.lr', label: 'Learning rate' },
  { name: 'steps', key: 'trainer.totalTrainingSteps', label: 'Steps' },
  { name: 'n', key: 'rollout.n', label: 'Tries per problem' },
  { name: 'seed', key: 'seed', label: 'Seed' },
] as const;

export class Settings {
  readonly #form = byId('settings') as HTMLFormElement;
  readonly #summary = el('p', 'summary');
  readonly #recipe: string;
  readonly #name: string;
  readonly #notes = el('p', 'note');
  /** `set=key=value` of the address: any config key. */
  readonly #overrides: string[];
  /** What the form shows of the recipe, by field. A field of the address or one that was changed is an override. */
  readonly #shown: ReadonlyMap<string, string>;

  /** `recipe` is the YAML text of configs/<name>.yaml. */
  constructor(recipe: string, name: string, address: URLSearchParams) {
    this.#recipe = recipe;
    this.#name = name;
    this.#overrides = address.getAll('set');
    const defaults = parseTrainConfig(recipe, { source: name });
    const written = parse(recipe) as unknown;
    this.#shown = new Map(
      FIELDS.filter(({ name }) => !address.has(name)).map(({ name, key }) => [
        name,
        String(name === 'loss' ? (valueAt(written, key) ?? '') : valueAt(defaults, key)),
      ]),
    );
    for (const { name, label, ...rest } of FIELDS) {
      const value = this.#shown.get(name) ?? address.get(name) ?? '';
      const input = 'choices' in rest ? select(rest.choices, value) : textField(value);
      [input.name, input.id] = [name, `setting-${name}`];
      const caption = el('label', '', label);
      caption.htmlFor = input.id;
      this.#form.append(el('div', 'field', caption, input));
    }
    this.#form.append(this.#summary, this.#notes);
    this.#form.addEventListener('submit', (event) => event.preventDefault());
    this.#form.addEventListener('input', () => this.#summarize());
    this.#summarize();
  }

  /** Says in a line what the choices come to; a mistake is said while it is being made. */
  #summarize(): void {
    const notes: string[] = [];
    try {
      setText(this.#summary, summaryOf(this.config((sentence) => notes.push(sentence))));
      this.#summary.classList.remove('wrong');
    } catch (error) {
      setText(this.#summary, (error as Error).message);
      this.#summary.classList.add('wrong');
    }
    setText(this.#notes, notes.join(' '));
  }

  /** The run the form asks for. Throws InputError. @param note takes what is worth saying of it */
  config(note: (sentence: string) => void = () => {}): TrainConfig {
    const values = new FormData(this.#form);
    const overrides = FIELDS.flatMap(({ name, key }) => {
      const value = values.get(name);
      const asked = typeof value === 'string' && value.trim() !== '' && value !== this.#shown.get(name);
      return asked ? [`${key}=${value.trim()}`] : [];
    });
    return parseTrainConfig(this.#recipe, { source: this.#name, overrides: [...overrides, ...this.#overrides], note });
  }

  enable(on: boolean): void {
    for (const input of this.#form.querySelectorAll<HTMLInputElement>('input, select')) input.disabled = !on;
  }
}

function summaryOf({ actor, algorithm, data, rollout }: TrainConfig): string {
  const { lossAggMode, clipRatioLow, clipRatioHigh, klLossCoef, useKlLoss } = actor;
  const updates = (data.trainBatchSize / actor.ppoMiniBatchSize) * actor.ppoEpochs;
  return [
    `${data.trainBatchSize} problems \u00d7 ${rollout.n} tries a step, ${updates} update${updates === 1 ? '' : 's'}`,
    `loss ${actor.policyLoss.lossMode}, ${lossAggMode}`,
    `clip ${clipRatioLow} / ${clipRatioHigh}`,
    `advantage ${algorithm.advEstimator}`,
    useKlLoss ? `KL ${klLossCoef}` : 'no KL term',
  ].join(' \u00b7 ');
}

function textField(value: string): HTMLInputElement {
  const input = el('input');
  input.value = value;
  input.inputMode = 'decimal';
  input.autocomplete = 'off';
  return input;
}

function select(choices: readonly string[], value: string): HTMLSelectElement {
  const options = choices.map((choice) => {
    const option = el('option', '', choice === '' ? "the algorithm's" : choice);
    option.value = choice;
    return option;
  });
  const element = el('select', '', ...options);
  element.value = value;
  return element;
}
