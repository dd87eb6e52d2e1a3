/** Reads files of problems, one JSON object per line, with the place of every error. Splits them into training and held-out problems. */

import { InputError } from '../../../errors.ts';
import { placed } from '../../../tasks/problem.ts';
import { hash, keyedRng, permutation } from '../../../tasks/random.ts';
import type { Problem, Task } from '../../../tasks/task.ts';

/** The text of a JSONL file, and the file's name for error messages. */
export interface JsonlFile {
  /** Name of the file in error messages and problem ids. */
  file: string;
  /** Text with one JSON object per line. */
  text: string;
}

/** The files of a task. If there are several held-out files, the name of each is that of its set, with metrics `val-core/<name>/...`. */
export interface JsonlFiles {
  /** Training problems. */
  train: JsonlFile;
  /** Held-out problems. Default: the last eighth of the training file. */
  val?: JsonlFile | readonly (JsonlFile & { name: string })[];
}

/** One line of a file: its parsed object, its text, and its place, e.g. "train.jsonl, line 3". */
export interface JsonlRow {
  fields: Record<string, unknown>;
  line: string;
  where: string;
}

/** Paths of the files as the user wrote them in `task` of a config. */
export interface WrittenPaths {
  path?: string | undefined;
  valPath?: string | readonly string[] | Readonly<Record<string, string>> | undefined;
}

type ReadProblems<P extends Problem> = (file: JsonlFile) => P[];

/** Parses the rows of a JSONL text. Skips blank lines. Throws InputError that names the line if a line is not an object. */
export function readRows({ file, text }: JsonlFile): JsonlRow[] {
  const lines = text.replace(/^\uFEFF/, '').split('\n');
  const other = otherFormat(text.replace(/^\uFEFF/, ''));
  if (other !== undefined) throw new InputError(`${file} is ${other}. Write one JSON object per line.`);
  const rows = lines.flatMap((line, i) => (line.trim() === '' ? [] : [readRow(line, `${file}, line ${i + 1}`)]));
  if (rows.length === 0) throw new InputError(`${file} holds no problems. Write one JSON object per line.`);
  return rows;
}

/** Returns the name of the format if a text is not JSON Lines but in another common format; undefined otherwise. */
function otherFormat(text: string): string | undefined {
  const [first, second] = text.trimStart().split('\n', 2);
  if (/^\[\s*(\{|$)/.test(first)) return 'a JSON array';
  if (/^\{\s*$/.test(first) && second !== undefined) return 'a JSON object over several lines';
  if (/^[\w"]+(\t|,|;)[\w"]/.test(first)) return `a table whose first line is ${first.slice(0, 60)}`;
  return undefined;
}

function readRow(line: string, where: string): JsonlRow {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (error) {
    throw new InputError(`${where}: not valid JSON (${(error as Error).message}). Write one JSON object per line.`, {
      cause: error,
    });
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value))
    return { fields: value as Record<string, unknown>, line, where };
  throw new InputError(`${where}: ${line.trim().slice(0, 80)} is not a JSON object. Write one JSON object per line.`);
}

/**
 * Reads the files of a config's `path` and `valPath`. If there are several held-out files, the name of a set is its key, or its file name
 * without the extension. Throws InputError.
 */
export async function readFiles(
  { path, valPath }: WrittenPaths,
  readText: (path: string) => Promise<string>,
): Promise<JsonlFiles> {
  if (path === undefined) throw new InputError('task.path is missing. Set it to a JSONL file of problems.');
  const open = async (file: string): Promise<JsonlFile> => ({ file, text: await readText(file) });
  const train = await open(path);
  if (valPath === undefined) return { train };
  if (typeof valPath === 'string') return { train, val: await open(valPath) };
  const named = isList(valPath) ? valPath.map((file) => [setName(file), file] as const) : Object.entries(valPath);
  const twice = named.find(([name], i) => named.findIndex(([other]) => other === name) < i);
  if (twice)
    throw new InputError(
      `task.valPath has two files named "${twice[0]}", so their metrics would have the same names. Name them: {first: ..., second: ...}.`,
    );
  return { train, val: await Promise.all(named.map(async ([name, file]) => ({ name, ...(await open(file)) }))) };
}

const isList = <T>(value: T | readonly T[] | object): value is readonly T[] => Array.isArray(value);
const setName = (path: string): string => path.replace(/^.*[\\/]/s, '').replace(/(.)\.[^.]*$/s, '$1');

/** Returns the training and held-out problems of the files. Throws InputError, also if there is only one problem and no held-out file. */
export function splitProblems<P extends Problem>(
  { train, val }: JsonlFiles,
  read: ReadProblems<P>,
): { train: P[]; test: P[] } {
  const all = read(train);
  if (isList(val))
    return { train: all, test: val.flatMap((set) => read(set).map((p) => placed({ ...p, dataSource: set.name }, p))) };
  if (val !== undefined) return { train: all, test: read(val) };
  if (all.length < 2)
    throw new InputError(
      `${train.file} has only one problem, so none can be held out for validation. Set task.valPath to another file.`,
    );
  const held = Math.ceil(all.length / 8);
  return { train: all.slice(0, -held), test: all.slice(-held) };
}

/**
 * Returns functions that return training problems, in another order each epoch, and the first `count` held-out problems (of each
 * `dataSource`).
 * @param name name of the task, which determines the order together with the seed and the epoch
 */
export function drawnFrom<P extends Problem>(name: string, train: readonly P[], test: readonly P[]) {
  let epoch = { key: '', order: [] as number[] };
  const orderOf = (seed: number, number: number) => {
    const key = `${seed}/${number}`;
    if (epoch.key !== key)
      epoch = { key, order: permutation(train.length, keyedRng(`${name}-epoch`, hash(seed, number))) };
    return epoch.order;
  };
  return {
    trainSize: train.length,
    train: (index: number, seed: number): P =>
      train[orderOf(seed, Math.floor(index / train.length))[index % train.length]],
    heldOut: (count: number): P[] => firstOfEachSource(test, count),
  } satisfies Partial<Task>;
}

function firstOfEachSource<P extends Problem>(problems: readonly P[], count: number): P[] {
  const taken = new Map<string | undefined, number>();
  return problems.filter(({ dataSource }) => {
    const before = taken.get(dataSource) ?? 0;
    taken.set(dataSource, before + 1);
    return before < count;
  });
}
