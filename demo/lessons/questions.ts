/** Six questions that a reader answers before the first lesson and after the last. Only the reader sees the answers. */

interface Question {
  id: string;
  text: string;
  options: readonly string[];
  /** Index of the right option. */
  right: number;
  why: string;
  /** Number of the lesson that answers the question. */
  lesson: number;
}

export const QUESTIONS: readonly Question[] = [
  {
    id: 'q1',
    text: 'A run logs a loss of 0.000 at every step, and its reward rises. Is something wrong?',
    options: [
      'Yes: a model can only learn while its loss falls',
      'No: this is what a sound run looks like',
      'It cannot be said without the learning rate',
    ],
    right: 1,
    why: 'The advantages of a group add up to 0, so the loss stays near 0. Its gradient does not.',
    lesson: 3,
  },
  {
    id: 'q2',
    text: 'All eight tries at a problem are right, and each earns a reward of 1. What does the update do with them?',
    options: ['All eight become more likely', 'The shortest of them becomes more likely', 'Nothing'],
    right: 2,
    why: 'A try is pushed by how it did against its own group. In a group that agrees every advantage is 0.',
    lesson: 1,
  },
  {
    id: 'q3',
    text: 'Two tries have the same advantage. One has 4 tokens, the other 33. The loss is the mean over all tokens. Which try moves the model more?',
    options: ['The one with 33 tokens', 'The one with 4 tokens', 'Both as much'],
    right: 0,
    why: 'Every token counts the same, and the long try has more of them.',
    lesson: 2,
  },
  {
    id: 'q4',
    text: 'The reward rises, but fewer and fewer held-out problems are solved. What has happened?',
    options: [
      'The learning rate is too low',
      'The reward pays for something else than solving problems',
      'This is noise, and more steps will mend it',
    ],
    right: 1,
    why: 'The model does what is paid, not what is meant. Read tries.',
    lesson: 4,
  },
  {
    id: 'q5',
    text: 'Two runs solve 0.97 and 0.95 of the same 256 held-out problems. Is the first one better?',
    options: ['Yes', 'Yes, if both have the same seed', 'That has not been shown'],
    right: 2,
    why: 'With 256 problems a difference of 0.02 is within the noise, and one seed a side shows nothing about a method.',
    lesson: 6,
  },
  {
    id: 'q6',
    text: "The ratio of a token is the trainer's probability divided by the sampler's. What must it be before the first update of a step?",
    options: [
      '1, and if it is not, sampler and trainer disagree',
      'Anything from 0.8 to 1.28',
      'It depends on the advantage',
    ],
    right: 0,
    why: 'Before an update both have the same weights. Another value means another temperature, other tokens or other numbers.',
    lesson: 7,
  },
];
