/** A problem: the messages that a sample starts from, and its answer. */

import { blame, shownValue, UserCodeError } from '../errors.ts';
import { startTimer } from './timer.ts';

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

const ROLES = ['system', 'user', 'assistant', 'tool'] satisfies Message['role'][];
const EXPECTED =
  'Give { id, messages: [{ role, content }, ...], answer }, with texts for id, content and answer and ' +
  `with the roles ${ROLES.join(', ')}`;

/**
 * Returns the problem that the code of a task returns. Throws UserCodeError if the code throws or does not return a problem.
 * @param what name of the problem in errors, e.g. 'Training problem 3 of task "mine"'
 * @param timeoutMs time limit of a promise
 */
export function givenProblem(what: string, give: () => Problem): Problem;
export function givenProblem(
  what: string,
  give: () => Problem | Promise<Problem>,
  timeoutMs?: number,
): Problem | Promise<Problem>;
export function givenProblem(
  what: string,
  give: () => Problem | Promise<Problem>,
  timeoutMs = Infinity,
): Problem | Promise<Problem> {
  const call = { kind: 'problem', what, expected: EXPECTED, timeoutMs };
  return givenBy(call, give, (problem) => checkedProblem(what, problem));
}

/** A call of a user's function, for errors. */
export interface OwnCall {
  /** Kind of the code in one word, e.g. 'observe'. */
  kind: string;
  /** The call as the start of a sentence, e.g. 'Training problem 3 of task "mine"'. */
  what: string;
  /** Duty of the function, as a sentence without its full stop. */
  expected: string;
  /** Time limit of a promise that the function returns, in milliseconds. Default: no limit. */
  timeoutMs?: number;
}

/** Calls whose promises are not settled, for an error if the process ends before. */
export const unsettledCalls = new Set<OwnCall>();

/**
 * Returns what `read` makes of the result of a user's function, at once unless that is a promise. Throws UserCodeError if the function
 * throws, or if its promise rejects or does not settle in time.
 */
export function givenBy<T, R>(
  call: OwnCall,
  give: () => T | PromiseLike<T>,
  read: (given: T) => R | Promise<R>,
): R | Promise<R> {
  const blamed = (error: unknown): never => {
    throw blame(call.kind, call.what, error, call.expected);
  };
  try {
    const given = give();
    return isPromise(given) ? settled(call, given).then(read).catch(blamed) : read(given);
  } catch (error) {
    return blamed(error);
  }
}

const isPromise = <T>(given: T | PromiseLike<T>): given is PromiseLike<T> =>
  typeof given === 'object' && given !== null && 'then' in given && typeof given.then === 'function';

async function settled<T>(call: OwnCall, given: PromiseLike<T>): Promise<T> {
  const { kind, what, expected, timeoutMs = Infinity } = call;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    const message = `${what} did not resolve in ${timeoutMs / 1000} s (task.timeoutS). ${expected}.`;
    timer = startTimer(() => reject(new UserCodeError(`${kind} took too long`, message)), timeoutMs);
    // In Node, a timer alone does not keep the process alive: if nothing can settle the promise, the process ends at once.
    (timer as { unref?(): void } | undefined)?.unref?.();
  });
  unsettledCalls.add(call);
  try {
    return await Promise.race([given, late]);
  } finally {
    clearTimeout(timer);
    unsettledCalls.delete(call);
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

/** Returns true for an object { role, content } with a known role and a text. */
export const isMessage = (message: unknown): message is Message => {
  const { role, content } = (message ?? {}) as Partial<Message>;
  return ROLES.some((known) => known === role) && typeof content === 'string';
};
