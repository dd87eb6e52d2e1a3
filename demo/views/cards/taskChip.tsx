/** The task in the header, once the cards are gone. */

import { openRecipe } from '../../actions/controller.ts';
import { complain } from '../../state/notices.ts';
import { RECIPES } from '../../state/recipes.ts';
import { form, YOUR_MODEL } from '../../state/settings/settings.ts';
import { stage } from '../../state/stage.ts';

/** Chooses the task of the next run. */
export function TaskChip() {
  const { name } = stage.value;
  if (name === 'idle' || name === 'asking') return null;
  const chosen = form.chosen.value;
  const choose = (select: HTMLSelectElement) =>
    void openRecipe(select.value)
      .catch(complain)
      .finally(() => (select.value = form.chosen.peek() ?? ''));
  return (
    <select
      aria-label="Task"
      value={chosen}
      disabled={name !== 'looking'}
      onChange={({ currentTarget }) => choose(currentTarget)}
    >
      {!RECIPES.some((recipe) => recipe.name === chosen) && chosen !== YOUR_MODEL && (
        <option value={chosen}>{chosen}</option>
      )}
      {RECIPES.map((recipe) => (
        <option key={recipe.name} value={recipe.name}>
          {recipe.title}
        </option>
      ))}
      <option value={YOUR_MODEL}>Your model</option>
    </select>
  );
}
