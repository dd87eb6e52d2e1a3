/**
 * Damages checkpoints in many ways. A run that is resumed from a damaged one by name must end in one error message, before anything in the
 * run folder is changed. Without a name, the newest intact checkpoint must be used.
 */

import { cpSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { disk } from '../src/cli/files.ts';
import { InputError } from '../src/errors.ts';
import { readSafetensors, writeSafetensors } from '../src/model/checkpoint/safetensors.ts';
import type { TensorMap } from '../src/model/engine.ts';
import { checkCheckpoint, newestCheckpoint } from '../src/runs/checkpointFolder.ts';
import { keyedRng } from '../src/tasks/random.ts';
import { inFolder } from './files.ts';
import { runOn } from './files/scriptedRun.ts';
import { difference, snapshot } from './files/snapshot.ts';
import type { CampaignOptions, CampaignPart, CampaignRow } from './part.ts';

const TRAINER = ['trainer_state.json', 'optimizer.safetensors'];

interface Damage {
  name: string;
  /** The damaged file. */
  file: string;
  /** @param folder folder of the newest checkpoint @param other folder of the previous one */
  make(folder: string, other: string): void;
}

/** Returns what went wrong when the damaged checkpoint was loaded; undefined if the damage was detected as expected. */
async function unnoticed(run: string, { file, make }: Damage): Promise<string | undefined> {
  const path = `${run}-damaged`;
  rmSync(path, { recursive: true, force: true });
  cpSync(run, path, { recursive: true });
  const [newest, other] = [8, 6].map((step) => `${path}/checkpoints/step-${step}`);
  make(newest, other);
  const before = snapshot(path);
  for (const use of TRAINER.includes(file) ? (['trainer'] as const) : (['trainer', 'model'] as const)) {
    const refused = await checkCheckpoint(disk, newest, use).catch((error: unknown) => error);
    // The damage to a manifest may concern a file that is not read to load the model. The model is then intact.
    if (refused === undefined && use === 'model' && file === 'manifest.json') continue;
    if (!isSentence(refused)) return `as a ${use}: ${String(refused)}`;
    const notes: string[] = [];
    const taken = await newestCheckpoint(disk, path, use, (line) => notes.push(line));
    if (taken !== other || notes.length !== 2) return `as a ${use}: took ${taken}, saying ${notes.length} lines`;
  }
  const resumed = await runOn(disk, path, {}, newest).catch((error: unknown) => error);
  if (!isSentence(resumed)) return `resumed by name: ${String(resumed)}`;
  const changed = difference(before, snapshot(path));
  return changed && `refused, but ${changed}`;
}

const isSentence = (error: unknown): boolean =>
  error instanceof InputError && !/\n|\. .*\. .*\. .*\. /.test(error.message);

async function row(what: string, run: string, all: Damage[], options: CampaignOptions): Promise<CampaignRow> {
  // A fifth contains every file, and every kind of damage to a file.
  const damages = options.full ? all : all.filter((_, i) => i % 5 === 0);
  const failures: string[] = [];
  for (const damage of damages) {
    const wrong = await unnoticed(run, damage);
    if (wrong !== undefined) failures.push(`${damage.file}, ${damage.name}: ${wrong}`);
  }
  options.say(`${what}: ${damages.length}, ${failures.length} wrong`);
  return { what, tried: damages.length, wrong: failures.length, failures };
}

/** Returns the damages to try on a file: a flipped bit at `count` places, three truncations, an empty file, the file of another checkpoint. */
function ofFile(file: string, folder: string, seed: number, count: number): Damage[] {
  const whole = readFileSync(join(folder, file));
  const rng = keyedRng(`damage ${file}`, seed);
  const flips = Array.from({ length: count }, () => [
    Math.floor(rng.uniform() * whole.length),
    Math.floor(rng.uniform() * 8),
  ]);
  return [
    ...flips.map(([at, bit]) => ({
      ...{ name: `bit ${bit} of byte ${at}`, file },
      make: (newest: string) => writeFileSync(join(newest, file), whole.with(at, whole[at] ^ (1 << bit))),
    })),
    ...[0, whole.length >> 1, whole.length - 1].map((size) => ({
      ...{ name: `cut at ${size}`, file },
      make: (newest: string) => truncateSync(join(newest, file), size),
    })),
    {
      name: 'more at its end',
      file,
      make: (newest) => writeFileSync(join(newest, file), Buffer.concat([whole, whole.subarray(0, 1)])),
    },
    // A folder without a manifest counts as one of an older version, which is read without checks, with a note.
    ...(file === 'manifest.json'
      ? []
      : [{ name: 'removed', file, make: (newest: string) => rmSync(join(newest, file)) }]),
    // Tokenizers and config.json are the same in every checkpoint.
    ...(readFileSync(join(folder, '../step-6', file)).equals(whole)
      ? []
      : [
          {
            name: "another checkpoint's",
            file,
            make: (newest: string, other: string) => cpSync(join(other, file), join(newest, file)),
          },
        ]),
  ];
}

const STATE = { step: 8, problems: 16, updates: 8 };
const STATES: Record<string, unknown> = {
  ...{ null: null, list: [], empty: {}, text: 'step', number: 8 },
  ...{
    'step alone': { step: 8 },
    'no step': { problems: 1, updates: 1 },
    'no problems': { step: 8, updates: 8 },
    'no updates': { step: 8, problems: 16 },
  },
  ...{
    'another step': { ...STATE, step: 6 },
    'step 1e9': { ...STATE, step: 1e9 },
    'step null': { ...STATE, step: null },
  },
  ...{ 'step -1': { ...STATE, step: -1 }, 'step 7.5': { ...STATE, step: 7.5 }, 'step a text': { ...STATE, step: '8' } },
  ...{
    'problems -1': { ...STATE, problems: -1 },
    'problems null': { ...STATE, problems: null },
    'problems 2^60': { ...STATE, problems: 2 ** 60 },
  },
  ...{
    'updates a text': { ...STATE, updates: '3' },
    'updates 0.5': { ...STATE, updates: 0.5 },
    'updates null': { ...STATE, updates: null },
  },
  ...{
    'klCoef null': { ...STATE, klCoef: null },
    'klCoef -1': { ...STATE, klCoef: -1 },
    'carried an object': { ...STATE, carried: {} },
  },
  ...{ 'carried [-1]': { ...STATE, carried: [-1] }, 'entropy half': { ...STATE, entropy: { coeff: 1 } } },
  ...{
    'baseline null': { ...STATE, roleBaselines: { a: null } },
    'parts a list': { ...STATE, parts: 7 },
    'unknown key': { ...STATE, steps: 8 },
  },
};
const STATE_TEXTS: Record<string, string> = {
  ...Object.fromEntries(Object.entries(STATES).map(([name, state]) => [name, JSON.stringify(state)])),
  ...{
    'no bytes': '',
    'cut JSON': '{"step": 8, "problems"',
    'updates 1e400': '{"step": 8, "problems": 16, "updates": 1e400}',
  },
};

/** Returns states that no version has written, in a folder without a manifest. */
const states = (): Damage[] =>
  Object.entries(STATE_TEXTS).map(([name, text]) => ({
    ...{ name, file: TRAINER[0] },
    make(newest) {
      rmSync(join(newest, 'manifest.json'));
      writeFileSync(join(newest, TRAINER[0]), text);
    },
  }));

function optimizers(): Damage[] {
  const change = (name: string, edit: (tensors: TensorMap) => void): Damage => ({
    ...{ name, file: TRAINER[1] },
    make(newest) {
      const path = join(newest, TRAINER[1]);
      const tensors = readSafetensors(readFileSync(path));
      edit(tensors);
      rmSync(join(newest, 'manifest.json'));
      writeFileSync(path, writeSafetensors(tensors));
    },
  });
  const bytes = (name: string, content: Uint8Array | string): Damage => ({
    ...{ name, file: TRAINER[1] },
    make(newest) {
      rmSync(join(newest, 'manifest.json'));
      writeFileSync(join(newest, TRAINER[1]), content);
    },
  });
  const step = (...values: number[]) =>
    change(`step ${values.join()}`, (t) => t.set('step', { shape: [values.length], data: Float32Array.from(values) }));
  const moment = (suffix: string, value: number) =>
    change(`${value} in ${suffix}`, (t) => ([...t].find(([name]) => name.endsWith(suffix))![1].data[1] = value));
  return [
    ...[NaN, -7, 1e30, 0.5, Infinity, -Infinity].map((value) => step(value)),
    ...[step(), step(1, 2), change('no step', (t) => t.delete('step'))],
    ...[NaN, Infinity, -Infinity].flatMap((value) => [moment('.exp_avg', value), moment('.exp_avg_sq', value)]),
    moment('.exp_avg_sq', -1e-8),
    ...[
      bytes('no bytes', ''),
      bytes('JSON', '{}'),
      bytes('zeros', new Uint8Array(64)),
      bytes('a long header', new Uint8Array(64).fill(255)),
    ],
  ];
}

export const damage: CampaignPart = {
  name: 'damage',
  run: (options) =>
    inFolder(async (run) => {
      await runOn(disk, run, { maxActorCkptToKeep: 2 });
      const newest = `${run}/checkpoints/step-8`;
      const seeds = options.full ? Array.from({ length: 20 }, (_, i) => options.seed + i) : [options.seed];
      const files = readdirSync(newest).flatMap((file) =>
        seeds.flatMap((seed) => ofFile(file, newest, seed, options.full ? 10 : 4)),
      );
      return [
        await row(
          'a checkpoint file with a bit flipped, cut, lengthened, removed or swapped: refused',
          run,
          files,
          options,
        ),
        await row('trainer_state.json of wrong contents, without a manifest: refused', run, states(), options),
        await row('optimizer.safetensors of wrong contents, without a manifest: refused', run, optimizers(), options),
      ];
    }),
};
