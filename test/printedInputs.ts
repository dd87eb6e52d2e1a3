/**
 * What users write, as interfaces with a comment at each key: the types that are inferred from the schemas have none, and an
 * editor shows what stands there. test/unit/configInput.test.ts keeps src/grpo/config/input the same.
 */
import type * as v from 'valibot';
import { type DocumentedKey, keyDocs } from '../src/grpo/config/resolve.ts';
import { TRAIN_SCHEMA } from '../src/grpo/config/schema/index.ts';
import { SFT_SCHEMA } from '../src/grpo/config/sftSchema.ts';

/** What is read here of a schema of keys.ts; a pipe has the fields of its first schema, which is what goes in. */
interface Shape {
  type: string;
  wrapped?: Shape;
  entries?: Record<string, Shape>;
  options?: readonly (string | Shape)[];
  items?: readonly Shape[];
  item?: Shape;
  value?: Shape;
}

/** Text by name of file: one for `webgrpo sft`; of `webgrpo train` one a part, as all of it is over 400 lines. */
export function printedInputs(): Map<string, string> {
  const [train, ...nested] = interfaces(TRAIN_SCHEMA, 'TrainConfigInput', '');
  const parts = new Set(nested.map(({ path }) => path.split('.')[0]));
  const ofPart = (part: string) => nested.filter(({ path }) => path.split('.')[0] === part);
  const imports = [...parts].map((part) => `import type { ${ofPart(part)[0].name} } from './${part}.ts';`);
  const sft = interfaces(SFT_SCHEMA, 'SftConfigInput', 'Sft');
  const texts = (printed: Printed[]) => printed.map(({ text }, i) => (i === 0 ? `export ${text}` : text));
  return new Map([
    ...[...parts].map((part): [string, string] => [part, file(`\`${part}\` of a training run`, texts(ofPart(part)))]),
    ['train', file('A training run', [imports.join('\n'), ...texts([train])])],
    ['sft', file('A supervised run', texts(sft))],
  ]);
}

/** What `v.custom` stands for: types that a user writes, and where they are. */
const RUBRIC = { name: 'RubricInput', from: '../../../tasks/rewards/rubric/parse.ts' };

function file(what: string, blocks: string[]): string {
  const head = `/** ${what}, as a user writes it. Printed from the schema by test/printedInputs.ts. */`;
  const uses = blocks.some((block) => block.includes(RUBRIC.name));
  return [head, ...(uses ? [`import type { ${RUBRIC.name} } from '${RUBRIC.from}';`] : []), ...blocks].join('\n\n');
}

interface Printed {
  path: string;
  name: string;
  text: string;
}

/** One for the schema, one for each part in it. @param prefix of the names of parts */
function interfaces(schema: v.GenericSchema, root: string, prefix: string): Printed[] {
  const docs = new Map(keyDocs(schema).map((doc) => [doc.path, comment(doc)]));
  const walk = (name: string, { type, entries = {} }: Shape, path: string): Printed[] => {
    const [lines, nested]: [string[], Printed[]] = [[], []];
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
    return [{ path, name, text: [`interface ${name} {`, ...lines, '}'].join('\n') }, ...nested];
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
      return RUBRIC.name;
    case 'record':
      return `Record<string, ${inner(shape.value!)}>`;
  }
  throw new Error(`"${path}": test/printedInputs.ts prints no schema of type ${shape.type}.`);
}

/** Reason; range with unit; default. */
function comment({ why, range, unit, required, default: value }: DocumentedKey): string {
  const absent = value === undefined ? '' : ` Default: ${JSON.stringify(value)}.`;
  const text = `${why} Allowed: ${range}${unit && ` (${unit})`}.${required ? ' Required.' : absent}`;
  return `/** ${text.replaceAll('*/', '*\\/')} */`;
}
