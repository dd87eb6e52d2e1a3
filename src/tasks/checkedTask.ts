/**
 * Checks what the functions of a task return. They are a user's code, which can throw, never resolve, or return anything. The command line
 * checks the tasks of modules, the trainer checks all tasks. Rewards, tools and environments are checked where they run.
 */

import { describe, InputError, shownValue, UserCodeError } from '../errors.ts';
import { givenBy, givenProblem, isMessage, type Message, type OwnCall, type Problem } from './problem.ts';
import type { Task } from './task.ts';
import { jsonText } from './toolOutput.ts';

/** Functions that a task can leave out. */
const OPTIONAL = ['observe', 'state', 'restore', 'demonstrate', 'ask', 'close'] as const satisfies (keyof Task)[];

/**
 * Returns the task with functions that throw UserCodeError if the task's own function throws, returns an invalid value, or returns a
 * promise that does not settle in `timeoutMs`. Throws InputError if an optional function is not a function.
 */
export function checkedTask(task: Task, timeoutMs = Infinity): Task {
  checkOptional(task);
  const of = (what: string) => `${what} of task "${task.name}"`;
  const call = (kind: string, what: string, expected: string): OwnCall => ({
    kind,
    what: of(what),
    expected,
    timeoutMs,
  });
  const listed = call('heldOut', 'The list of held-out problems', 'Return a list of problems from heldOut(count)');
  return {
    ...fieldsOf(task),
    train: (index, seed) => givenProblem(of(`Training problem ${index}`), () => task.train(index, seed), timeoutMs),
    heldOut: (count) =>
      givenBy(
        listed,
        () => task.heldOut(count),
        (given): Problem[] | Promise<Problem[]> => {
          if (!Array.isArray(given)) throw invalid(listed, shownValue(given));
          const problems = given.map((problem: Problem | Promise<Problem>, i) =>
            givenProblem(of(`Held-out problem ${i}`), () => problem, timeoutMs),
          );
          return problems.some((problem) => problem instanceof Promise)
            ? Promise.all(problems.map(async (problem) => problem))
            : (problems as Problem[]);
        },
      ),
    reward: (sample) => task.reward(sample),
    ...(task.observe && {
      observe: (problem, rewards) => {
        const observed = call('observe', `observe() of problem "${problem.id}"`, 'Mend observe(problem, rewards)');
        return givenBy(
          observed,
          () => task.observe?.(problem, rewards),
          () => undefined,
        );
      },
    }),
    ...(task.state && { state: () => plainState(call('state', 'The result of state()', 'Return plain JSON'), task) }),
    ...(task.restore && {
      restore: (state) => {
        const restored = call(
          'restore',
          'The result of restore()',
          'Restore what state() has returned, without a promise',
        );
        atOnce(
          restored,
          () => task.restore?.(state) as unknown,
          (given) => {
            if (given instanceof Promise) throw invalid(restored, 'a promise');
          },
        );
      },
    }),
    ...(task.demonstrate && {
      demonstrate: (problem, rng, errorRate) => {
        const demonstrated = call('demonstrate', `The demonstration of problem "${problem.id}"`, DEMONSTRATION);
        return givenBy(
          demonstrated,
          () => task.demonstrate?.(problem, rng, errorRate),
          (given) => checkedMessages(demonstrated, given, 'assistant'),
        );
      },
    }),
    ...(task.ask && {
      ask: (text) => {
        const asked = call('ask', 'The result of ask()', 'Return a list of messages { role, content }');
        return atOnce(
          asked,
          () => task.ask?.(text),
          (given) => checkedMessages(asked, given),
        );
      },
    }),
    ...(task.close && { close: () => task.close?.() }),
  };
}

/** Returns the fields of a task that are not functions. A task can be an instance of a class, whose methods a spread does not copy. */
function fieldsOf(task: Task): Omit<Task, 'train' | 'heldOut' | 'reward' | (typeof OPTIONAL)[number]> {
  const { name, tools, environments, trainSize, tokenizer, sha256 } = task;
  const given = Object.entries({ tools, environments, trainSize, tokenizer, sha256 });
  return { ...task, name, ...Object.fromEntries(given.filter(([, value]) => value !== undefined)) };
}

function checkOptional(task: Task): void {
  for (const name of OPTIONAL) {
    const value: unknown = task[name];
    if (value === undefined || typeof value === 'function') continue;
    throw new InputError(
      `Task "${task.name}" has ${shownValue(value)} as "${name}". Give a function, or leave the field out.`,
    );
  }
  expectSavedState(task.name, (method) => task[method] !== undefined);
}

/** Throws InputError if a task has only one of the functions `state` and `restore`. */
export function expectSavedState(task: string, has: (method: 'state' | 'restore') => boolean): void {
  if (has('state') === has('restore')) return;
  const [there, lacking] = has('state') ? ['state', 'restore'] : ['restore', 'state'];
  throw new InputError(
    `Task "${task}" has ${there}() without ${lacking}(), so a resumed run would lose its state. Write both, or none.`,
  );
}

const invalid = ({ kind, what, expected }: OwnCall, found: string): UserCodeError =>
  new UserCodeError(`${kind} returned`, `${what} is ${found}. ${expected}.`);

/** Same as `givenBy`, for a function that must not return a promise: `read` gets the promise. */
const atOnce = <T, R>(call: OwnCall, give: () => T, read: (given: T) => R): R =>
  givenBy(
    call,
    () => ({ given: give() }),
    ({ given }) => read(given),
  ) as R;

/** Returns a task's state. Throws UserCodeError if a checkpoint could not hold it. */
function plainState(call: OwnCall, task: Task): unknown {
  return atOnce(
    call,
    () => task.state?.(),
    (state) => {
      try {
        if (state !== undefined) jsonText(state);
        return state;
      } catch (error) {
        throw invalid(call, describe(error));
      }
    },
  );
}

const DEMONSTRATION =
  'Return a list of messages { role, content } that ends with one of the assistant (rng has uniform(), int(low, high) and pick(list))';

/** @param last role that the last message must have. Default: any */
function checkedMessages(call: OwnCall, given: unknown, last?: Message['role']): Message[] {
  const messages: unknown[] = Array.isArray(given) ? given : [];
  const isRead = messages.length > 0 && messages.every(isMessage);
  if (isRead && (last === undefined || messages.at(-1)?.role === last)) return messages;
  throw invalid(call, shownValue(given));
}
