/** Answers a user's own question with the model in training. Used by `webgrpo generate`, the page's panel and the library. */

export { answer, type AnswerOptions } from './answer.ts';
export { questionOf, questionTokens } from './question.ts';
