/**
 * Rewards by models: judges, rubrics and classifiers. Runs with `reward.judge`, `reward.rubric` or `reward.model` use them:
 * `src/trainerParts.ts` provides them to the trainer. Programs import rubrics from `webgrpo/tasks`.
 */

export { parseRubric, type Rubric } from './rubric/parse.ts';
