/**
 * Reads problems from rows of common data sets: TRL's `prompt` and `answer`, verl's `prompt` and `reward_model.ground_truth`, plain
 * `messages`.
 */

import { InputError } from '../../../errors.ts';
import { placed } from '../../../tasks/problem.ts';
import type { Message, Problem } from '../../../tasks/task.ts';
import { type JsonlFile, type JsonlRow, readRows } from './file.ts';

/** Names of the fields of a row from which a problem is read. */
export interface JsonlFields {
  /** Name of the field with the prompt; dots lead into nested objects. Empty = `messages` or `prompt`. */
  promptKey: string;
  /**
   * Name of the field with the answer. Empty = the first one present of `answer`, `reward_model.ground_truth`, `ground_truth`, `solution`.
   */
  answerKey: string;
  /** System message for prompts without one. If empty, the chat template can add its own. */
  systemPrompt: string;
}

export const JSONL_FIELDS: Readonly<JsonlFields> = { promptKey: '', answerKey: '', systemPrompt: '' };

const PROMPT_KEYS = ['messages', 'prompt'];
const ANSWER_KEYS = ['answer', 'reward_model.ground_truth', 'ground_truth', 'solution'];
/** Optional text fields of a problem, each with the names that files use for it. */
const TEXTS = {
  dataSource: ['data_source', 'dataSource'],
  agentName: ['agent_name', 'agentName'],
  role: ['role'],
  template: ['template'],
};
const ROLES = ['system', 'user', 'assistant', 'tool'];

/** Maximum length of a name, because metrics and log lines contain names. */
const MAX_NAME = 200;

/** Returns why no response could match an answer, as the end of a sentence. Undefined if a response could match. */
type AnswerCheck = (answer: string) => string | undefined;

/**
 * Parses the problems of a JSONL text. All other fields of a row are copied to its problem. Throws InputError that names the line.
 * @param check checks each answer. Undefined: a missing answer is allowed and becomes '', and an answer that is not a text becomes JSON
 */
export function parseJsonl(file: JsonlFile, fields: JsonlFields, check?: AnswerCheck): Problem[] {
  const seen = new Map<string, string>();
  return readRows(file).map((row, i) => {
    const problem = problemOf(row, fields, check, `${file.file}-${i}`);
    const other = seen.get(problem.id);
    if (other !== undefined)
      throw fault(row, `the id "${problem.id}" is that of ${other} as well. Give each line its own, or none`);
    seen.set(problem.id, row.where.slice(file.file.length + 2));
    return placed(problem, row.where);
  });
}

const fault = ({ where }: JsonlRow, what: string): InputError => new InputError(`${where}: ${what}.`);

function problemOf(row: JsonlRow, keys: JsonlFields, check: AnswerCheck | undefined, id: string): Problem {
  // A field `__proto__` is refused, because copying it would set the prototype of the copy, for example in a reward that copies the
  // problem.
  if (Object.hasOwn(row.fields, '__proto__')) throw fault(row, 'a field is named "__proto__". Rename it');
  const texts = Object.entries(TEXTS).map(([name, written]): [string, unknown] => [name, nameIn(row, written)]);
  return {
    ...Object.fromEntries([...Object.entries(row.fields), ...texts].filter(([, value]) => (value ?? null) !== null)),
    id: idIn(row) ?? id,
    messages: promptIn(row, keys),
    answer: answerIn(row, keys.answerKey, check),
  };
}

function idIn(row: JsonlRow): string | undefined {
  const { id } = row.fields;
  return Number.isSafeInteger(id) ? String(id) : nameIn(row, ['id']);
}

/** Returns the value of the first of these names that the row has. It must be a short text on one line. */
function nameIn(row: JsonlRow, names: readonly string[]): string | undefined {
  const name = names.find((known) => valueAt(row.fields, known) !== undefined);
  if (name === undefined) return undefined;
  const value = row.fields[name];
  if (typeof value === 'string' && value.trim() !== '' && value.length <= MAX_NAME && !/\p{Cc}/u.test(value))
    return value;
  const number = name === 'id' ? ' or a whole number' : '';
  throw fault(
    row,
    `"${name}" is ${shown(value)}; allowed: a text of 1 to ${MAX_NAME} characters on one line${number}. Change or remove it`,
  );
}

function promptIn(row: JsonlRow, { promptKey, systemPrompt }: JsonlFields): Message[] {
  const keys = promptKey === '' ? PROMPT_KEYS : [promptKey];
  const [key, other] = keys.filter((known) => valueAt(row.fields, known) !== undefined);
  if (key === undefined) throw absent(row, 'prompt', keys, 'promptKey');
  if (other !== undefined)
    throw fault(row, `both "${key}" and "${other}" are there. Say which is the prompt: task.options.promptKey`);
  const value = valueAt(row.fields, key);
  const messages =
    typeof value === 'string' ? [{ role: 'user' as const, content: value }] : messagesIn(row, key, value);
  const last = messages[messages.length - 1];
  if (last.role === 'assistant')
    throw fault(row, `"${key}" ends with the assistant's message, which the model is to write. Leave that one out`);
  if (last.content.trim() === '') throw fault(row, `"${key}" ends in an empty text. Write what the model is asked`);
  if (systemPrompt === '' || messages[0].role === 'system') return messages;
  return [{ role: 'system', content: systemPrompt }, ...messages];
}

function messagesIn(row: JsonlRow, key: string, value: unknown): Message[] {
  if (!Array.isArray(value) || value.length === 0)
    throw fault(
      row,
      `"${key}" is ${shown(value)}; allowed: a text, or messages: [{"role": "user", "content": "..."}]. Write one of them`,
    );
  return value.map((message: unknown, i) => {
    const wrong = (what: string) => fault(row, `message ${i + 1} of "${key}" ${what}`);
    if (typeof message !== 'object' || message === null)
      throw wrong(`is ${shown(message)}; allowed: {role, content}. Write both`);
    const { role, content, tool_calls: calls } = message as Record<string, unknown>;
    if (!isRole(role)) throw wrong(`has the role ${shown(role)}; allowed: ${ROLES.join(', ')}. Name one of them`);
    if (typeof content !== 'string')
      throw wrong(`has the content ${shown(content)}; allowed: a text. Write it as one text`);
    if (Array.isArray(calls) && calls.length > 0)
      throw wrong('has tool_calls, which are not read. Write the call into its content as the chat template would');
    return { role, content };
  });
}

const isRole = (role: unknown): role is Message['role'] => ROLES.includes(role as string);

function answerIn(row: JsonlRow, answerKey: string, check: AnswerCheck | undefined): string {
  const keys = answerKey === '' ? ANSWER_KEYS : [answerKey];
  const key = keys.find((known) => valueAt(row.fields, known) !== undefined);
  if (key === undefined) {
    if (check) throw absent(row, 'answer', keys, 'answerKey');
    return '';
  }
  const value = valueAt(row.fields, key);
  const wrong = (why: string) => fault(row, `the answer "${key}" is ${shown(value)}, ${why}`);
  if (Number.isInteger(value) && !Number.isSafeInteger(value))
    throw wrong('a number that JSON does not keep exactly. Write it as a text, in quotes');
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  if (!check) return text;
  if (typeof value !== 'string' && typeof value !== 'number')
    throw wrong('but must be a text or a number. Write one of them');
  if (text.trim() === '') throw wrong('which has no text. Write what the model should answer');
  const unfit = check(text);
  if (unfit !== undefined) throw wrong(unfit);
  return text;
}

const absent = (row: JsonlRow, what: string, keys: readonly string[], option: string): InputError =>
  fault(
    row,
    `it has no ${what}: expected ${keys.map((key) => `"${key}"`).join(' or ')}, found ${
      Object.keys(row.fields)
        .slice(0, 8)
        .map((key) => shown(key))
        .join(', ') || 'no field'
    }. Rename the field, or set task.options.${option} to its name`,
  );

/** Returns the field with this name, or the one at this path of names with dots. null counts as missing, as in common data sets. */
function valueAt(fields: Record<string, unknown>, key: string): unknown {
  if (Object.hasOwn(fields, key)) return fields[key] ?? undefined;
  let value: unknown = fields;
  for (const part of key.split('.')) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, part)) return undefined;
    value = (value as Record<string, unknown>)[part];
  }
  return value ?? undefined;
}

const shown = (value: unknown): string => (JSON.stringify(value) ?? 'absent').slice(0, 60);
