/** Explanations of the page's terms, one line each, for students. */

export const GLOSSARY = {
  try: 'One answer of the model to a problem, written token by token with some chance in it.',
  token: 'A piece of text, often a word or a part of one: what a language model reads and writes.',
  step: 'One round of training: the model tries some problems, is scored, and is changed a little.',
  group: 'All tries at one problem. They are compared with one another, and that is what the model learns from.',
  reward:
    'The points that a try earned, by the rule of the task: here mostly 1 for a right answer and 0 for a wrong one.',
  'pass@1': 'Share of problems it never trained on that it solves at the first try.',
  greedy: 'Always taking the likeliest token, without chance.',
  advantage:
    'How much better a try did than the others of its group. Above 0 it is made likelier, below 0 less likely.',
  entropy:
    'How undecided the model is about the next token; it falls as the model becomes sure. In nats: 0.69 is two equal choices.',
  KL: 'How far two versions of the model differ in what they would write. An estimate, so it may fall a little below 0.',
  'gradient norm': 'The size of the change that a step asks for. A spike is a step to look at.',
  'learning rate':
    'How much the weights are changed at each update. Too high and training falls apart, too low and nothing happens.',
  clip: 'A limit on how far one update may change the probability of a token.',
  loss: 'The number that an update makes smaller; it weighs tokens by their advantage.',
  algorithm: 'The recipe that turns rewards into a change of the model. GRPO compares the tries of a group.',
  GRPO: 'Group Relative Policy Optimization: try a problem several times, strengthen what did better than the rest.',
  update: 'One change of the weights. A step may make several.',
  seed: 'Where the chance begins: the same seed gives the same run.',
  temperature:
    'How much chance is in the choice of tokens: 0 always takes the likeliest, 1 draws by the probabilities.',
  'tool call': 'The model asks a program, such as a calculator, and reads its answer before it writes on.',
  generate: 'The model writes its tries, tools answer, tries are scored.',
  'log-probs': 'The logarithms of the probabilities that the model gave to the tokens it wrote.',
  sync: 'Bringing the changed weights to where answers are written.',
  evaluate: 'Problems that it does not train on are tried, to see what it has learned.',
  rest: 'What a step takes besides: choosing problems, bookkeeping, saving.',
  'response length': 'Tokens of a try, with what tools answered.',
  'tokens per second': 'Tokens of all tries, problems included, over the time of the whole step.',
  checkpoint: 'The model and all that training needs, kept so that one can go back to it.',
  ratio: 'Probability of a token now, divided by its probability when it was written.',
} as const;

export type Word = keyof typeof GLOSSARY;
