/**
 * `npm run campaign`: tests faults of every kind, seeded and bounded, and prints counts in a table. Complete runs are stored in
 * docs/lab/reliability.md.
 *   --only inputs,device   parts to run    --short   about ten seconds a part    --seed N   other random cases    --json   prints the rows
 * The exit code is 1 if anything was lost or wrong.
 */

import '../src/engineParts.ts';
import '../src/trainerParts.ts';
import { type FlagSpec, readArgs } from '../src/cli/args.ts';
import { InputError } from '../src/errors.ts';
import type { CampaignPart, CampaignRow } from './part.ts';
import { keep, table } from './report.ts';

/** Parts in the order of the table. A part is loaded when it runs. */
const PARTS: Record<string, () => Promise<CampaignPart>> = {
  damage: async () => (await import('./damage.ts')).damage,
  files: async () => (await import('./files.ts')).files,
  device: async () => (await import('./device.ts')).device,
  configs: async () => (await import('./configs.ts')).configs,
  logs: async () => (await import('./logs.ts')).logs,
  userCode: async () => (await import('./userCode.ts')).userCode,
  kills: async () => (await import('./kills.ts')).killsPart,
  signals: async () => (await import('./kills.ts')).signalsPart,
  soak: async () => (await import('./soak.ts')).soakPart,
  models: async () => (await import('./models.ts')).part,
  hub: async () => (await import('./hub.ts')).part,
  tokens: async () => (await import('./tokens.ts')).part,
  sandbox: async () => (await import('./sandbox.ts')).part,
  messages: async () => (await import('./messages.ts')).part,
  rooms: async () => (await import('./rooms.ts')).part,
  page: async () => (await import('./page.ts')).page,
};

const FLAGS: Record<string, FlagSpec> = {
  only: { value: 'parts', help: 'parts to run, comma-separated' },
  short: { help: 'about ten seconds a part' },
  seed: { value: 'N', help: 'what is drawn (default 1)' },
  json: { help: 'print the rows' },
};

const say = (line: string) => process.stderr.write(`campaign: ${line}\n`);

async function main(args: string[]): Promise<void> {
  const { flags } = readArgs(args, FLAGS);
  const names = typeof flags['only'] === 'string' ? flags['only'].split(',') : Object.keys(PARTS);
  const unknown = names.find((name) => !Object.hasOwn(PARTS, name));
  if (unknown !== undefined)
    throw new InputError(`--only names "${unknown}". There are ${Object.keys(PARTS).join(', ')}.`);
  const seed = Number(flags['seed'] ?? 1);
  if (!Number.isInteger(seed)) throw new InputError(`--seed is "${String(flags['seed'])}". Give a whole number.`);
  const full = flags['short'] !== true;
  const rows: CampaignRow[] = [];
  for (const name of names) {
    const started = performance.now();
    const part = await PARTS[name]();
    const found = await part.run({ seed, full, say: (line) => say(`${name}: ${line}`) });
    const seconds = (performance.now() - started) / 1000;
    say(`${name}: ${seconds.toFixed(0)} s`);
    if (full) keep(name, seconds, found, Object.keys(PARTS));
    rows.push(...found);
  }
  process.stdout.write(flags['json'] === true ? `${JSON.stringify(rows, null, 2)}\n` : `${table(rows)}\n`);
  for (const failure of rows.flatMap(({ failures }) => failures).slice(0, 50)) say(`wrong: ${failure}`);
  if (rows.some(({ wrong }) => wrong > 0)) process.exitCode = 1;
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof InputError)) throw error;
  say(error.message);
  process.exitCode = 2;
}
// A server of Vite can leave a watcher of files, which would keep the process alive.
process.stdout.write('', () => process.exit());
