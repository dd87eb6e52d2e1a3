/** A problem: the messages that a sample starts from, and its answer. */

export interface Message {
  role: 'system' | 'user' | 'assistant' | 'tool';
  content: string;
}

/** One problem. Example: { id: 'train-17', messages: [{ role: 'user', content: 'Tom has ...' }], answer: '24', template: 'shop-total' } */
export interface Problem {
  id: string;
  messages: Message[];
  answer: string;
  /** Which generator template made it, for per-template reports. */
  template?: string;
  /** Which set a held-out problem is of, where there are several (verl's data_source); absent = the task's name. */
  dataSource?: string;
  /** Runs under this registered agent loop instead of the run's (verl's agent_name). */
  agentName?: string;
  /** The role that the policy plays in it, e.g. which player of a game: advEstimator rae keeps a baseline for each. */
  role?: string;
  [extra: string]: unknown;
}
