/** Prints the config schemas as text, for `webgrpo config` and docs/reference/config.md. */

import { type DocumentedKey, keyDocs, MOST } from '../grpo/config/keys.ts';
import { OTHER_NAMES, PEER_NAMES } from '../grpo/config/peerNames.ts';
import { TRAIN_SCHEMA } from '../grpo/config/schema/index.ts';
import { SFT_SCHEMA } from '../extensions/sft/index.ts';
import { InputError } from '../errors.ts';

const SCHEMAS = { train: TRAIN_SCHEMA, sft: SFT_SCHEMA };

/** A config key, and the command whose YAML has this key. */
interface CommandKey extends DocumentedKey {
  command: string;
}

/** Returns the keys of all configs, of one command's config, or below one section of it. Throws InputError for a section without keys. */
export function configText(part?: string): { text: string; keys: CommandKey[] } {
  const all = Object.entries(SCHEMAS).flatMap(([command, schema]) =>
    keyDocs(schema).map((key): CommandKey => ({ command, ...key })),
  );
  const isAsked = ({ command, path }: CommandKey) =>
    part === undefined || command === part || path === part || path.startsWith(`${part}.`);
  const keys = all.filter(isAsked);
  if (keys.length === 0) {
    const parts = [...Object.keys(SCHEMAS), ...new Set(all.map(({ path }) => path.split('.')[0]))];
    throw new InputError(`The config has no part "${part}". There are ${parts.join(', ')}.`);
  }
  const line = (key: CommandKey) => `${key.path}: ${showDefault(key)}\n    ${key.range}${unit(key)}. ${key.why}`;
  const sections = Object.keys(SCHEMAS).flatMap((command) => {
    const own = keys.filter((key) => key.command === command);
    return own.length > 0 ? [[`webgrpo ${command}:`, ...own.map(line)].join('\n')] : [];
  });
  return { text: sections.join('\n\n'), keys };
}

/** Returns docs/reference/config.md. */
export function configMarkdown(): string {
  return [
    '# Configuration',
    '',
    'For anyone who writes a YAML or an override. Here you can look up what a key does, its default and what is allowed.',
    '',
    'Printed from the schemas by `npm run -s webgrpo -- config --markdown`. Any key can be set on the command line as `actor.optim.lr=1e-4`. Unknown',
    "keys are errors. If the default is empty, the column `why` says what a missing key means. The column verl has the key's path in verl 0.9, and is empty if verl has no such key.",
    "TRL's names of the keys: [from-trl-verl.md](from-trl-verl.md).",
    '',
    `Largest allowed counts: ${Object.entries(MOST)
      .map(([unit, most]) => `${unit} ${most}`)
      .join(', ')}, other units 2^31.`,
    'These limits are far above the largest published runs; a run with larger counts would hang. A step can have at most 1048576 samples.',
    '',
    '## Training: `webgrpo train`',
    ...table(keyDocs(TRAIN_SCHEMA), true),
    '',
    '## Supervised training: `webgrpo sft`',
    ...table(keyDocs(SFT_SCHEMA)),
    '',
  ].join('\n');
}

function table(keys: readonly DocumentedKey[], withVerl = false): string[] {
  const cell = (text: string) => text.replaceAll('|', '\\|');
  const verl = ({ path }: DocumentedKey) => named(PEER_NAMES.find(({ key }) => key === path)?.verl);
  const cells = (key: DocumentedKey) => [
    `\`${key.path}\``,
    showDefault(key),
    `${cell(key.range)}${unit(key)}`,
    cell(key.why),
    ...(withVerl ? [verl(key)] : []),
  ];
  const head = ['key', 'default', 'allowed', 'why', ...(withVerl ? ['verl'] : [])];
  return ['', ...[head, head.map(() => '---'), ...keys.map(cells)].map((row) => `| ${row.join(' | ')} |`)];
}

function showDefault(key: DocumentedKey): string {
  if (key.required) return '(required)';
  return key.default === undefined ? '' : JSON.stringify(key.default);
}

/** Formats a name as Markdown code; '' for undefined. */
const named = (text: string | undefined) => (text === undefined ? '' : `\`${text}\``);

const unit = (key: DocumentedKey) => (key.unit === '' ? '' : ` (${key.unit})`);

/** Returns docs/reference/from-trl-verl.md: a table of our keys and their names in verl and TRL. */
export function peersMarkdown(): string {
  const known = new Set(keyDocs(TRAIN_SCHEMA).map(({ path }) => path));
  const rows = PEER_NAMES.filter(({ key }) => known.has(key)).map(
    ({ key, verl, trl, note = '' }) => `| \`${key}\` | ${named(verl)} | ${named(trl)} | ${note} |`,
  );
  return [
    '# From TRL, from verl',
    '',
    'For users of TRL or verl who know the name of a setting there. Here you can look up the name of the same setting in webgrpo, and what differs.',
    '',
    'Printed by `npm run -s webgrpo -- config --peers` from the names in the schema (`src/grpo/config/schema/`): verl 0.9.0, TRL 1.10. `webgrpo export` writes',
    'by these names, and hints at unknown keys read them. An empty cell means that the other trainer has no such setting. What each key does, and its',
    "default: [config.md](config.md). Why a name is not verl's: [decisions/names.md](../decisions/names.md).",
    '',
    'To go the other way, `webgrpo export verl | trl` writes a run of ours as one of theirs.',
    '',
    '| here | verl | TRL | |',
    '| --- | --- | --- | --- |',
    ...rows,
    '',
    'Names that are a part of one of these, or that have no key here:',
    '',
    '| name | of | here |',
    '| --- | --- | --- |',
    ...OTHER_NAMES.map(([peer, other, key, why]) => `| \`${other}\` | ${peer} | ${why ?? named(key)} |`),
    '',
  ].join('\n');
}
