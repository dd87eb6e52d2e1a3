/** A problem: the messages that a sample starts from, and its answer. */

import { blame, UserCodeError } from '../errors.ts';

/** A message of a conversation, as chat templates take it. */
export interface Message {
  /** Who speaks. */
  role: 'system' | 'user' | 'assistant' | 'tool';
  /** What is said; control tokens named in it stay text. */
  content: string;
}

/** One problem. Example: { id: 'train-17', messages: [{ role: 'user', content: 'Tom has ...' }], answer: '24', template: 'shop-total' } */
export interface Problem {
  /** Names it in logs, reports and errors; different for different problems. */
  id: string;
  /** The prompt, at least one message. */
  messages: Message[];
  /** What the reward compares with; the model never sees it. */
  answer: string;
  /** Which generator template made it, for per-template reports. */
  template?: string;
  /** Which set a held-out problem is of, where there are several (verl's data_source); absent = the task's name. */
  dataSource?: string;
  /** Runs under this registered agent loop instead of the run's (verl's agent_name). */
  agentName?: string;
  /** The role that the policy plays in it, e.g. which player of a game: advEstimator rae keeps a baseline for each. */
  role?: string;
  /** Runs in the environment of this name, one of `Task.environments`; absent = the task's only one. */
  environment?: string;
  /** Names of the tools that it has, of the task's and its environment's; absent = all of them. */
  tools?: readonly string[];
  [extra: string]: unknown;
}

const PLACES = new WeakMap<Problem, string>();

/** The problem, which errors then name by its file and line, e.g. "train.jsonl, line 3". @param from a place, or the problem that it is a copy of */
export function placed<P extends Problem>(problem: P, from: string | Problem): P {
  const place = typeof from === 'string' ? from : PLACES.get(from);
  if (place !== undefined) PLACES.set(problem, place);
  return problem;
}

/** File and line of a problem, or its id if it was not read from a file. */
export const placeOf = (problem: Problem): string => PLACES.get(problem) ?? `problem "${problem.id}"`;

/** A problem as the subject of an error: by its file and line if it has them, and by its id. */
export function problemName(problem: Problem): string {
  const place = PLACES.get(problem);
  const name = `"${problem.id}"`;
  return place === undefined ? `Problem ${name}` : `${place} (problem ${name})`;
}

const EXPECTED = 'give { id, messages: [{ role, content }, ...], answer }, with texts for role and content';

/**
 * A problem that a task's code gives. Throws UserCodeError where it throws, or gives what is none.
 * @param what names the problem, e.g. 'Training problem 3 of task "mine"'
 */
export function givenProblem(what: string, give: () => Problem): Problem;
export function givenProblem(what: string, give: () => Problem | Promise<Problem>): Problem | Promise<Problem>;
export function givenProblem(what: string, give: () => Problem | Promise<Problem>): Problem | Promise<Problem> {
  const blamed = (error: unknown): never => {
    throw blame('problem', what, error, EXPECTED);
  };
  try {
    const given = give();
    if (given instanceof Promise) return given.then((problem) => checkedProblem(what, problem)).catch(blamed);
    return checkedProblem(what, given);
  } catch (error) {
    return blamed(error);
  }
}

function checkedProblem(what: string, problem: Problem): Problem {
  const { messages } = (problem ?? {}) as Partial<Problem>;
  if (Array.isArray(messages) && messages.length > 0 && messages.every(isMessage)) return problem;
  throw new UserCodeError('problem', `${what} has no messages that can be read; ${EXPECTED}.`);
}

/** True for { role, content } with texts in both. */
export const isMessage = (message: unknown): message is Message => {
  const { role, content } = (message ?? {}) as Partial<Message>;
  return typeof role === 'string' && typeof content === 'string';
};
