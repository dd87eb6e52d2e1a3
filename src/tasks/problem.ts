/** A problem: the messages that a sample starts from, and its answer. */

import { blame, shownValue, UserCodeError } from '../errors.ts';

/** A message of a conversation, in the form that chat templates expect. */
export interface Message {
  /** Role of the speaker. */
  role: 'system' | 'user' | 'assistant' | 'tool';
  /** Text of the message. Names of control tokens in it are encoded as text. */
  content: string;
}

/** One problem. Example: { id: 'train-17', messages: [{ role: 'user', content: 'Tom has ...' }], answer: '24', template: 'shop-total' } */
export interface Problem {
  /** Name that is unique in logs, reports and errors. */
  id: string;
  /** The prompt, at least one message. */
  messages: Message[];
  /** Answer that the reward compares responses with. The model never sees it. */
  answer: string;
  /** Id of the template that generated the problem, for reports per template. */
  template?: string;
  /** Data set of a held-out problem, if there are several (verl's data_source). Default: the task's name. */
  dataSource?: string;
  /** Name of a registered agent loop to use instead of the run's (verl's agent_name). */
  agentName?: string;
  /** Role of the policy in the problem, such as one player of a game. The advantage estimator rae keeps a baseline per role. */
  role?: string;
  /** Name of the problem's environment, one of `Task.environments`. Default: the task's only one. */
  environment?: string;
  /** Names of the problem's tools, out of those of the task and the environment. Default: all of them. */
  tools?: readonly string[];
  [extra: string]: unknown;
}

const PLACES = new WeakMap<Problem, string>();

/**
 * Remembers the file and line of a problem for errors, e.g. "train.jsonl, line 3". Returns the problem.
 * @param from the place, or another problem whose place is copied
 */
export function placed<P extends Problem>(problem: P, from: string | Problem): P {
  const place = typeof from === 'string' ? from : PLACES.get(from);
  if (place !== undefined) PLACES.set(problem, place);
  return problem;
}

/** Returns the file and line of a problem; if the problem is not from a file, its id. */
export const placeOf = (problem: Problem): string => PLACES.get(problem) ?? `problem "${problem.id}"`;

/** Returns how an error names a problem: by file and line, if they are known, and by id. */
export function problemName(problem: Problem): string {
  const place = PLACES.get(problem);
  const name = `"${problem.id}"`;
  return place === undefined ? `Problem ${name}` : `${place} (problem ${name})`;
}

const EXPECTED = 'Give { id, messages: [{ role, content }, ...], answer }, with texts for id, role, content and answer';

/**
 * Returns the problem that the code of a task returns. Throws UserCodeError if the code throws or does not return a problem.
 * @param what name of the problem in errors, e.g. 'Training problem 3 of task "mine"'
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
  const { messages, id, answer } = (problem ?? {}) as { [K in keyof Problem]?: unknown };
  const wrong = (found: string) => new UserCodeError('problem', `${what} has ${found}. ${EXPECTED}.`);
  if (!Array.isArray(messages) || messages.length === 0 || !messages.every(isMessage))
    throw wrong(
      `${messages === undefined ? '' : `the messages ${shownValue(messages)}, so it has `}no messages that can be read`,
    );
  if (typeof id !== 'string' || id === '') throw wrong(`the id ${shownValue(id)}`);
  if (answer !== undefined && typeof answer !== 'string') throw wrong(`the answer ${shownValue(answer)}`);
  return problem;
}

/** Returns true for an object { role, content } whose values are texts. */
export const isMessage = (message: unknown): message is Message => {
  const { role, content } = (message ?? {}) as Partial<Message>;
  return typeof role === 'string' && typeof content === 'string';
};
