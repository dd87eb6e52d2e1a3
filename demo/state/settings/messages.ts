/** A refusal of the config as the form says it: by the field's label, beside the field. */

import { FIELDS, type FieldName } from './fields.ts';

/** A refusal, and the field of the form to blame, if the form has it. */
export interface Problem {
  problem: string;
  field: FieldName | undefined;
}

/** @param message of an InputError @param source what it calls the recipe @param overrides as they were given */
export function inPlainWords(message: string, source: string, overrides: readonly string[]): Problem {
  const from = [...overrides.map((text) => `override ${text}: `), `${source} with these settings: `, `${source}: `];
  const prefix = from.find((text) => message.startsWith(text)) ?? '';
  const sentence = message.slice(prefix.length);
  const field = FIELDS.find(({ key }) => sentence.startsWith(`"${key}"`) || prefix.startsWith(`override ${key}=`));
  if (!field) return { problem: sentence, field: undefined };
  return { problem: sentence.replaceAll(`"${field.key}"`, field.label), field: field.name };
}
