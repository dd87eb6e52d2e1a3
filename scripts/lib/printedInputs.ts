/**
 * Prints the types of configs as interfaces with a comment at each key, which editors show. Types inferred from the schemas have no
 * comments. scripts/build.mjs writes the text into dist/types.
 */
import type * as v from 'valibot';
import { type DocumentedKey, keyDocs } from '../../src/grpo/config/keys.ts';
import { TRAIN_SCHEMA } from '../../src/grpo/config/schema/index.ts';
import { SFT_SCHEMA } from '../../src/extensions/sft/schema.ts';

/** The fields of a valibot schema that this file reads. A pipe has the fields of its first schema, which describes the input. */
interface Shape {
  type: string;
  wrapped?: Shape;
  entries?: Record<string, Shape>;
  options?: readonly (string | Shape)[];
  items?: readonly Shape[];
  item?: Shape;
  value?: Shape;
}

/** Name of the type of `v.custom` schemas. */
const RUBRIC = 'RubricInput';

/** Returns, by source file, declarations that replace those of the file, with the same names. */
export const printedInputs = (): Record<string, string> => ({
  'src/grpo/config/input.ts': [
    '/** Configs, as a user writes them. */',
    `import type { ${RUBRIC} } from './schema/reward.ts';`,
    ...interfaces(TRAIN_SCHEMA, 'TrainConfigInput', ''),
  ].join('\n\n'),
  'src/extensions/sft/input.ts': interfaces(SFT_SCHEMA, 'SftConfigInput', 'Sft').join('\n\n'),
});

/** Returns one interface for the schema and one for each part in it. @param prefix prefix of the names of parts */
function interfaces(schema: v.GenericSchema, root: string, prefix: string): string[] {
  const docs = new Map(keyDocs(schema).map((doc) => [doc.path, comment(doc)]));
  const walk = (name: string, { type, entries = {} }: Shape, path: string): string[] => {
    const [lines, nested]: [string[], string[]] = [[], []];
    for (const [key, entry] of Object.entries(entries)) {
      const at = path === '' ? key : `${path}.${key}`;
      const inner = entry.wrapped ?? entry;
      const part = `${prefix}${at.split('.').map(capital).join('')}Input`;
      const input = inner.entries ? part : inputOf(inner, at);
      if (inner.entries) nested.push(...walk(part, inner, at));
      else lines.push(docs.get(at)!);
      lines.push(entry.type === 'optional' ? `${key}?: ${input} | undefined;` : `${key}: ${input};`);
    }
    if (type === 'loose_object') lines.push('[key: string]: unknown;');
    return [[`export interface ${name} {`, ...lines].join('\n  ') + '\n}', ...nested];
  };
  return walk(root, schema, '');
}

const capital = (key: string) => key[0].toUpperCase() + key.slice(1);

function inputOf(shape: Shape, path: string): string {
  const inner = (of: string | Shape) => (typeof of === 'string' ? JSON.stringify(of) : inputOf(of, path));
  switch (shape.type) {
    case 'string':
    case 'number':
    case 'boolean':
      return shape.type;
    case 'picklist':
    case 'union':
      return shape.options!.map(inner).join(' | ');
    case 'array':
      return `(${inner(shape.item!)})[]`;
    case 'strict_tuple':
      return `[${shape.items!.map(inner).join(', ')}]`;
    case 'custom':
      return RUBRIC;
    case 'record':
      return `Record<string, ${inner(shape.value!)}>`;
  }
  throw new Error(`"${path}": scripts/lib/printedInputs.ts prints no schema of type ${shape.type}.`);
}

/** Returns the comment of a key: reason, range with unit, default. */
function comment({ why, range, unit, required, default: value }: DocumentedKey): string {
  const absent = value === undefined ? '' : ` Default: ${JSON.stringify(value)}.`;
  const text = `${why} Allowed: ${range}${unit && ` (${unit})`}.${required ? ' Required.' : absent}`;
  return `/** ${text.replaceAll('*/', '*\\/')} */`;
}
