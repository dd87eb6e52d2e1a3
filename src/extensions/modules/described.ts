/** Validates the task that a module returns. Its names and sizes are used in metrics, prompts and files. */

import { distance } from 'fastest-levenshtein';
import * as v from 'valibot';
import { InputError, shownValue } from '../../errors.ts';
import { checkedTask } from '../../tasks/checkedTask.ts';
import type { Task } from '../../tasks/task.ts';
import type { Tool } from '../../tasks/tool.ts';
import { isObject } from '../../tasks/toolSchema.ts';

/** Schema of a task's name, which becomes part of the names of metrics. */
const name = v.pipe(v.string(), v.regex(/^[\w.-]{1,64}$/));
const count = v.pipe(v.number(), v.safeInteger(), v.minValue(1));
const methods = v.array(v.string());

const toolShape = v.object({
  name: v.string(),
  description: v.pipe(v.string(), v.maxLength(4000)),
  parameters: v.custom<Tool['parameters']>((value) => typeof value === 'object' && value !== null),
  timeoutMs: v.optional(v.pipe(v.number(), v.minValue(1))),
  retries: v.optional(v.number()),
  maxResponseLength: v.optional(count),
  truncateSide: v.optional(v.picklist(['left', 'right', 'middle'])),
  methods,
});

const taskShape = v.object({
  name,
  trainSize: v.optional(count),
  tokenizer: v.optional(v.object({ vocabSize: count, wordShare: v.number() })),
  methods,
  tools: v.pipe(v.array(toolShape), v.maxLength(64)),
});

type Shape = v.InferOutput<typeof taskShape>;
type Described<T> = { [K in keyof T]: Exclude<T[K], undefined> };
export type DescribedTask = Described<Omit<Shape, 'tools'>> & { tools: Described<Shape['tools'][number]>[] };

const NEEDED = ['train', 'heldOut', 'reward'] as const;

/** Validates the description of a task: its fields and the names of its functions. Throws InputError if it is not that of a task. */
export function describedTask(address: string, given: unknown): DescribedTask {
  const read = v.safeParse(taskShape, given);
  if (!read.success) {
    const [issue] = read.issues;
    throw notATask(address, `${v.getDotPath(issue) ?? 'it'}: ${issue.message}`);
  }
  const lacks = NEEDED.find((method) => !read.output.methods.includes(method));
  if (lacks !== undefined) throw notATask(address, `it has no function ${lacks}`);
  const tool = read.output.tools.find((each) => !each.methods.includes('execute'));
  if (tool) throw notATask(address, `its tool "${tool.name}" has no function execute`);
  return read.output as DescribedTask;
}

/** Time limit of a call of a function whose module runs without a sandbox, in milliseconds. */
export const OWN_CALL_MS = 300_000;

/**
 * Validates a task whose module runs without a sandbox, and returns it with checked functions. Throws InputError if the value is not a
 * task, or if the name of a field is misspelt.
 * @param timeoutMs see `checkedTask`
 */
export function checkTask(address: string, given: unknown, timeoutMs = OWN_CALL_MS): Task {
  if (!isObject(given)) throw notATask(address, `it exports ${shownValue(given)}`);
  const task = given as Partial<Task>;
  const missing = FIELDS.filter((field) => task[field] === undefined);
  for (const field of Object.keys(task)) {
    const meant = missing.find((known) => !FIELDS.includes(field as keyof Task) && isMisspelt(field, known));
    if (meant !== undefined)
      throw new InputError(
        `The task of ${address} has a field "${field}", which tasks do not have. Did you mean "${meant}"? Rename it.`,
      );
  }
  const { name: named, trainSize, tokenizer } = task;
  const methods = NEEDED.filter((method) => typeof task[method] === 'function');
  describedTask(address, { name: named, trainSize, tokenizer, methods, tools: [] });
  return checkedTask(task as Task, timeoutMs);
}

const FIELDS: readonly (keyof Task)[] = [
  ...([
    'name',
    'train',
    'trainSize',
    'heldOut',
    'tools',
    'environments',
    'reward',
    'observe',
    'state',
    'restore',
  ] as const),
  ...(['demonstrate', 'ask', 'tokenizer', 'sha256', 'close'] as const),
];

/** True if a field differs from a known field by at most one letter, or by two if the known name has more than five letters. */
const isMisspelt = (field: string, known: string): boolean =>
  distance(field.toLowerCase().replaceAll('_', ''), known.toLowerCase()) <= (known.length > 5 ? 2 : 1);

const notATask = (address: string, why: string): InputError =>
  new InputError(
    `The task module ${address} does not export a task (${why}). Export { name, train, heldOut, reward, tools? } by default, or a ` +
      'function of task.options that returns one, with a name of 1 to 64 letters, digits, ., _ and -.',
  );
