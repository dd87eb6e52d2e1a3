import { defineEnvironment, environmentTask } from 'webgrpo/tasks';

const guess = defineEnvironment({
  name: 'guess-a-number',
  reset: ({ answer }) => ({ state: { secret: Number(answer), tries: 0 }, observation: 'From 1 to 99.' }),
  tools: {
    guess: {
      description: 'Guesses the number.',
      parameters: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
      execute({ n }, { state }) {
        state.tries++;
        if (n === state.secret) return { text: 'right', reward: 1, done: true };
        return n < state.secret ? 'higher' : 'lower';
      },
    },
    hint: {
      description: 'Says whether the number is even; costs as much as two guesses.',
      parameters: { type: 'object', properties: {} },
      execute(_, { state }) {
        state.tries += 2;
        return state.secret % 2 === 0 ? 'even' : 'odd';
      },
    },
  },
  reward: ({ tries }) => -0.05 * tries,
});

const problem = (number: number) => ({
  id: String(number),
  messages: [{ role: 'user' as const, content: 'Guess my number.' }],
  answer: String(1 + (number % 99)),
});

export default environmentTask({
  name: 'guess-a-number',
  environments: [guess],
  train: (index) => problem(3 * index),
  heldOut: (count) => Array.from({ length: count }, (_, index) => problem(3 * index + 1)),
});
