/** Cards of the tasks that can be trained. Choosing one opens its recipe. */

import { useSignal } from '@preact/signals';
import type { ComponentType } from 'preact';
import { openRecipe } from '../../actions/controller.ts';
import { hub } from '../../state/address/visit.ts';
import { memoryInWords, recipeSeconds, timeInWords } from '../../state/estimate.ts';
import { complain } from '../../state/notices.ts';
import { recipeOf, RECIPES, type Recipe } from '../../state/recipes.ts';
import { RECORDED } from '../../state/recordedRecipes.ts';
import { form } from '../../state/settings/settings.ts';
import { PICTURES } from './pictures.tsx';
import { Sparkline } from './sparkline.tsx';
import './cards.css';
import { active, stage } from '../../state/stage.ts';

const HUB = 'hub';

/** The cards of all recipes. */
export function Cards() {
  const isHub = useSignal(false);
  const HubModel = useSignal<ComponentType | undefined>(undefined);
  const name = form.recipe.value?.name;
  const chosen = isHub.value ? HUB : name;
  const choose = (recipe: string) => {
    isHub.value = recipe === HUB;
    if (recipe !== HUB) void open(recipe).catch(complain);
    else void import('./hubModel.tsx').then((module) => (HubModel.value = module.HubModel)).catch(complain);
  };
  const told = isHub.value ? undefined : recipeOf(name);
  return (
    <>
      <fieldset class="cards" disabled={active.value || stage.value.name === 'forking'}>
        <legend>Choose a task</legend>
        {RECIPES.map((recipe) => (
          <Card key={recipe.name} recipe={recipe} isChosen={chosen === recipe.name} choose={choose} />
        ))}
        <label class={isHub.value ? 'card chosen' : 'card'}>
          <input type="radio" name="recipe" checked={isHub.value} onChange={() => choose(HUB)} />
          {PICTURES[HUB]()}
          <span class="card-title">Your model</span>
          <span class="card-text">Any supported model from the Hugging Face Hub, or a .gguf file.</span>
        </label>
      </fieldset>
      {told && (
        <p class="example">
          <b>{told.title}: </b>
          {`\u201c${told.question}\u201d \u2192 ${told.answer}`}
        </p>
      )}
      {isHub.value && HubModel.value && <HubModel.value />}
    </>
  );
}

function Card({ recipe, isChosen, choose }: { recipe: Recipe; isChosen: boolean; choose: (name: string) => void }) {
  const { name, title, sentence, noCurve } = recipe;
  const recorded = RECORDED[name];
  return (
    <label class={isChosen ? 'card chosen' : 'card'}>
      <input type="radio" name="recipe" value={name} checked={isChosen} onChange={() => choose(name)} />
      {PICTURES[name]()}
      <span class="card-title">{title}</span>
      <span class="card-text">{sentence}</span>
      {recorded && (
        <>
          <Sparkline recorded={recorded} />
          <span class="card-cost">{`${timeInWords(recipeSeconds(recorded))}, ${memoryInWords(recorded.memoryMib)}`}</span>
        </>
      )}
      {noCurve !== undefined && <span class="card-cost">{noCurve}</span>}
    </label>
  );
}

/** Opens a recipe. The address names it, so that it can be shared. Changes to the previous recipe are dropped. */
async function open(name: string): Promise<void> {
  await openRecipe(name);
  const kept = new URLSearchParams({ config: name });
  if (hub !== undefined) kept.set('hub', hub);
  window.history.replaceState(window.history.state, '', `?${kept.toString()}`);
}
