/** The recipes that run in the page, and their descriptions for a newcomer. */

import { InputError } from '../../src/errors.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { fetchConfig } from '../engine/configs.ts';

export interface Recipe {
  /** configs/<name>.yaml. */
  name: string;
  title: string;
  /** One sentence that a student can understand. */
  sentence: string;
  /** Plural noun for the recipe's problems, in the line about a run's cost. */
  problems: string;
  question: string;
  answer: string;
  /** Reason why the recipe's card has no curve; undefined = the card has one. */
  noCurve?: string;
}

export const DEFAULT_RECIPE = 'gsm8k-tool';

/** Titles of tasks. A title must fit the problems: the problems of gsm8k are generated from templates. */
const TASKS: Readonly<Record<string, string>> = {
  gsm8k: 'Word problems with a calculator',
  'reverse-text': 'Words spelled backwards',
  countdown: 'Countdown arithmetic',
  'tic-tac-toe': 'Tic-tac-toe',
  adventure: 'Text adventure',
  'search-qa': 'Questions with a search tool',
};

/** Returns the title of a run's task. */
export const taskTitle = ({ task: { name, module } }: TrainConfig): string =>
  module === undefined ? (TASKS[name] ?? name) : 'A custom task';

/** Recipes that need no file of the user's. */
export const RECIPES: readonly Recipe[] = [
  {
    name: DEFAULT_RECIPE,
    title: 'Calculator',
    sentence: 'The model learns to use a calculator instead of guessing.',
    problems: 'word problems',
    question: 'Ben had 53 toys but 8 broke. Ben packs the rest in boxes of 5. How many boxes?',
    answer: 'calculator(53-8), calculator(45/5), 9',
  },
  {
    name: 'reverse-text',
    title: 'Backwards',
    sentence: 'Starts from random weights and learns to spell letters backwards.',
    problems: 'texts',
    question: 'daj',
    answer: 'jad',
  },
  {
    name: 'countdown',
    title: 'Countdown',
    sentence: 'The model combines numbers to reach a target, and a rule checks the arithmetic.',
    problems: 'numbers',
    question: 'Make 6 from 2, 4.',
    answer: '2+4',
  },
  {
    name: 'tic-tac-toe',
    title: 'Tic-tac-toe',
    sentence: 'A model that plays at random learns to win.',
    problems: 'games',
    question: 'You are X; the cells are 1 to 9, and O has 7.',
    answer: '5, then 2, then 8',
  },
  {
    name: 'adventure',
    title: 'Adventure',
    sentence: 'Find the key, open the door and leave the house.',
    problems: 'houses',
    question: 'You are in the cellar. Exits: east, south. The door east is locked. Here: key.',
    answer: 'take key, use key, go east',
  },
  {
    name: 'search-qa',
    title: 'Search',
    sentence: 'The model answers questions by searching and opening documents.',
    problems: 'questions',
    question: 'Who is the mayor where Nali lives?',
    answer: 'search(Nali), open, search(Vizona), open, Tetezo',
    noCurve: 'No curve: GRPO has not improved this recipe yet.',
  },
];

/** Returns the recipe of a name; undefined if the page does not offer it. */
export const recipeOf = (name: string | undefined): Recipe | undefined =>
  RECIPES.find((recipe) => recipe.name === name);

/** Returns the text of configs/<name>.yaml. Throws InputError for a recipe that cannot run in a page, and names those that can. */
export async function fetchRecipe(name: string): Promise<string> {
  if (recipeOf(name)) return fetchConfig(name);
  const names = RECIPES.map((recipe) => recipe.name);
  const warm = names.find((known) => `${known}-sft` === name);
  if (warm) throw new InputError(`${name} is the warm start of ${warm}, which runs it automatically. Choose ${warm}.`);
  throw new InputError(
    `Unknown recipe "${name}". Recipes of the page: ${names.join(', ')}. Other recipes run on the command line.`,
  );
}
