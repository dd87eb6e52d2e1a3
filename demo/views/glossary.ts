/** Explanations of the page's terms, one line each, for students. */

export const GLOSSARY = {
  try: 'One answer to a problem, sampled token by token.',
  token: 'A piece of text, often a word or a part of one: what a language model reads and writes.',
  step: 'One round of training: generate tries, score them, update the model.',
  group: 'All tries of one problem. The model learns from the differences between them.',
  reward: 'The score of a try. In most tasks here, 1 for a right answer and 0 for a wrong one.',
  'pass@1': 'Share of held-out problems solved at the first try.',
  greedy: 'Always takes the most likely token, without sampling.',
  advantage: 'How much better a try was than its group. Above 0 it becomes more likely, below 0 less likely.',
  entropy: 'How uncertain the model is about the next token, in nats. 0.69 nats are two equally likely tokens.',
  KL: 'How far two versions of the model differ in what they would write. It is an estimate and can be slightly below 0.',
  'gradient norm': 'Size of the gradient of an update. Look at steps with spikes.',
  'learning rate': 'How much an update changes the weights. Too high: training diverges. Too low: nothing is learned.',
  clip: 'A limit on how far one update may change the probability of a token.',
  loss: 'The number that an update makes smaller. It weights tokens by their advantage.',
  algorithm: 'The method that turns rewards into updates. GRPO compares the tries of a group.',
  GRPO: 'Group Relative Policy Optimization: sample several tries per problem and reinforce those above the group mean.',
  update: 'One change of the weights. A step can make several.',
  seed: 'Start value of the random numbers. The same seed on the same GPU gives the same run.',
  temperature:
    "How random sampling is: 0 always takes the most likely token, 1 samples from the model's probabilities.",
  'tool call': 'The model calls a program, such as a calculator, and reads the result before it continues.',
  generate: 'The model writes its tries, tools run, tries are scored.',
  'log-probs': 'The logarithms of the probabilities that the model gave to the tokens it wrote.',
  sync: 'Copying the updated weights to the part that generates.',
  evaluate: 'Testing the model on held-out problems.',
  rest: 'Everything else in a step: choosing problems, metrics, saving.',
  'response length': 'Tokens of a try, tool results included.',
  'tokens per second': 'Tokens of all tries, problems included, over the time of the whole step.',
  checkpoint: 'A saved state of model and training, to resume or fork from.',
  ratio: 'Probability of a token now, divided by its probability when it was written.',
} as const;

export type Word = keyof typeof GLOSSARY;

/** Returns a text of the library in the page's words: "try" instead of "sample", without backticks. */
export const asTries = (text: string): string =>
  text.replace(/\bsample(s?)\b/g, (_, many) => (many ? 'tries' : 'try')).replaceAll('`', '');
