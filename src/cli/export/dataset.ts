/** Writes problems as Parquet rows, nested as verl and TRL expect them. */

import type { SchemaElement } from 'hyparquet';
import type { Problem } from '../../tasks/task.ts';

export interface ExportedSplit {
  split: 'train' | 'test';
  problems: Problem[];
}

const text = (name: string): SchemaElement => ({
  name,
  type: 'BYTE_ARRAY',
  converted_type: 'UTF8',
  repetition_type: 'OPTIONAL',
});
const group = (name: string, ...children: SchemaElement[][]): SchemaElement[] => [
  { name, num_children: children.length, repetition_type: 'OPTIONAL' },
  ...children.flat(),
];

/** Schema of a list of { role, content }. */
const PROMPT: SchemaElement[] = [
  { name: 'prompt', num_children: 1, repetition_type: 'OPTIONAL', converted_type: 'LIST' },
  { name: 'list', num_children: 1, repetition_type: 'REPEATED' },
  ...group('element', [text('role')], [text('content')]),
];

const VERL_SCHEMA: SchemaElement[] = [
  { name: 'root', num_children: 5 },
  text('data_source'),
  ...PROMPT,
  text('ability'),
  ...group('reward_model', [text('style')], [text('ground_truth')]),
  ...group('extra_info', [text('split')], [{ name: 'index', type: 'INT64', repetition_type: 'OPTIONAL' }]),
];

const TRL_SCHEMA: SchemaElement[] = [{ name: 'root', num_children: 2 }, ...PROMPT, text('answer')];

/** Returns verl's columns: data_source, prompt, ability, reward_model, extra_info. */
export async function verlParquet({ split, problems }: ExportedSplit, dataSource: string): Promise<Uint8Array> {
  const columns = {
    data_source: problems.map(() => dataSource),
    prompt: problems.map(promptOf),
    ability: problems.map(() => 'math'),
    reward_model: problems.map(({ answer }) => ({ style: 'rule', ground_truth: answer })),
    extra_info: problems.map((_, index) => ({ split, index: BigInt(index) })),
  };
  return writeParquet(columns, VERL_SCHEMA);
}

/** Returns TRL's columns: prompt (a conversation), and answer for the reward function. */
export async function trlParquet({ problems }: ExportedSplit): Promise<Uint8Array> {
  return writeParquet({ prompt: problems.map(promptOf), answer: problems.map(({ answer }) => answer) }, TRL_SCHEMA);
}

const promptOf = ({ messages }: Problem) => messages.map(({ role, content }) => ({ role, content }));

async function writeParquet(columns: Record<string, unknown[]>, schema: SchemaElement[]): Promise<Uint8Array> {
  const { parquetWriteBuffer } = await import('hyparquet-writer');
  const columnData = Object.entries(columns).map(([name, data]) => ({ name, data }));
  return new Uint8Array(parquetWriteBuffer({ columnData, schema, codec: 'UNCOMPRESSED' }));
}
