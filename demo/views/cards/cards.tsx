/** Cards of the tasks that can be trained. Choosing one opens its recipe. */

import { useSignal, useSignalEffect } from '@preact/signals';
import type { ComponentType } from 'preact';
import { useRef } from 'preact/hooks';
import { openRecipe } from '../../actions/controller.ts';
import { memoryInWords, recipeSeconds, timeInWords } from '../../state/estimate.ts';
import { complain } from '../../state/notices.ts';
import { recipeOf, RECIPES, type Recipe } from '../../state/recipes.ts';
import { RECORDED } from '../../state/recordedRecipes.ts';
import { form, YOUR_MODEL } from '../../state/settings/settings.ts';
import { PICTURES } from './pictures.tsx';
import { Sparkline } from './sparkline.tsx';
import './cards.css';
import { isRecorded, stage } from '../../state/stage.ts';

/** The cards of all recipes. */
export function Cards() {
  const HubModel = useSignal<ComponentType | undefined>(undefined);
  const chosen = form.chosen.value;
  const isHub = chosen === YOUR_MODEL;
  const place = useRef<HTMLFieldSetElement>(null);
  // If the visitor chooses a recipe that is then not opened (an error, or a run that was started), the browser has checked its radio
  // button. Check the right one again.
  const markChosen = () => {
    for (const input of place.current?.querySelectorAll('input') ?? [])
      input.checked = input.value === form.chosen.peek();
  };
  const choose = (name: string) => void openRecipe(name).catch(complain).finally(markChosen);
  useSignalEffect(() => {
    if (form.chosen.value === YOUR_MODEL && !HubModel.peek())
      void import('./hubModel.tsx').then((module) => (HubModel.value = module.HubModel)).catch(complain);
  });
  const told = recipeOf(chosen);
  const hub = isHub && HubModel.value && <HubModel.value />;
  // After the first run the task is chosen in the header.
  if (!['idle', 'asking'].includes(stage.value.name)) return stage.value.name === 'looking' && !isRecorded.value && hub;
  return (
    <>
      <fieldset class="cards" ref={place}>
        <legend>Choose a task</legend>
        {RECIPES.map((recipe) => (
          <Card key={recipe.name} recipe={recipe} isChosen={chosen === recipe.name} choose={choose} />
        ))}
        <label class={isHub ? 'card chosen' : 'card'}>
          <input type="radio" name="recipe" value={YOUR_MODEL} checked={isHub} onChange={() => choose(YOUR_MODEL)} />
          {PICTURES[YOUR_MODEL]()}
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
      {hub}
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
