/** Answers a user's own question with the model that is being trained. Used by `webgrpo generate`, the page and users of the library. */

export { answer, type AnswerOptions } from './answer.ts';
export { questionOf, questionTokens } from './question.ts';
