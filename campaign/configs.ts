/** Configs, overrides and command lines with random errors. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { keysAndParts } from '../src/grpo/config/keys.ts';
import { TRAIN_SCHEMA } from '../src/grpo/config/schema/index.ts';
import { SFT_SCHEMA } from '../src/extensions/sft/index.ts';
import { changed, odd, value } from './inputs/draw.ts';
import type { Input } from './inputs/input.ts';
import { judgeAll } from './inputs/judged.ts';
import type { CampaignPart } from './part.ts';

const FLAGS = [
  ...[
    '--model',
    '--adapter',
    '--tokens',
    '--out',
    '--config',
    '--algorithms',
    '--seeds',
    '--target',
    '--prompt',
    '--raw',
    '--chat',
  ],
  ...[
    '--json',
    '--help',
    '--dtype',
    '--quantization',
    '--temperature',
    '--top-k',
    '--stop',
    '--logit-bias',
    '--max-new-tokens',
  ],
  ...['--markdown', '--peers', '--fast', '--', '-', '-x', '--model=', '--seed', '--system', '--context'],
];
const WORDS = [
  ...[
    'a.yaml',
    'configs/reverse-text.yaml',
    'configs',
    'binary',
    'run',
    'tokens.json',
    'checkpoints/gsm8k-tool',
    'missing',
    'verl',
    'trl',
  ],
  ...['a.yaml/x', 'rollout', 'actor.optim', 'float16', 'int8', 'grpo', '1', '0.5'],
];
const COMMANDS = [
  'train',
  'compare',
  'sft',
  'eval',
  'generate',
  'merge',
  'score',
  'export',
  'config',
  'report',
  'profile',
];

/** Returns YAML with one or several keys, some nested, some with a value where the schema has a section. */
function lines(paths: readonly string[]): fc.Arbitrary<string> {
  const line = fc.tuple(
    fc.constantFrom(...paths, '__proto__', 'constructor', 'a'),
    fc.constantFrom('', ' ', '  '),
    value,
  );
  const written = line.map(
    ([path, indent, text]) =>
      `${indent}${path.split('.').join(`: {`)}: ${text}${'}'.repeat(path.split('.').length - 1)}`,
  );
  return fc.array(written, { maxLength: 5 }).map((all) => ['name: x', 'model: {path: m}', ...all].join('\n'));
}

function cases(count: number, seed: number): Record<string, Input[]> {
  const draw = <T>(arbitrary: fc.Arbitrary<T>, share: number) =>
    fc.sample(arbitrary, { seed, numRuns: Math.ceil(count * share) });
  const texts = (of: RegExp) =>
    readdirSync('configs')
      .filter((file) => of.test(file))
      .map((file) => readFileSync(join('configs', file), 'utf8'));
  const train = texts(/^((?!sft|gsm8k-real|qwen|smollm).)*\.yaml$/); // only recipes whose data is in the repository
  const base = readFileSync('configs/reverse-text.yaml', 'utf8');
  const paths = { train: [...keysAndParts(TRAIN_SCHEMA)], sft: [...keysAndParts(SFT_SCHEMA)] };
  const override = (of: readonly string[]) =>
    fc.oneof(
      {
        weight: 8,
        arbitrary: fc
          .tuple(fc.constantFrom(...of, 'a.__proto__.b', 'constructor.prototype.x', 'a..b'), value)
          .map((pair) => pair.join('=')),
      },
      { weight: 1, arbitrary: odd },
    );
  const overrides = (of: readonly string[]) => fc.array(override(of), { minLength: 1, maxLength: 3 });
  const words = fc.array(fc.oneof(fc.constantFrom(...WORDS), fc.constantFrom(...FLAGS), override(paths.train), odd), {
    maxLength: 6,
  });
  return {
    'YAML, unchanged': train.map((yaml) => ({ kind: 'train', yaml, overrides: [] })),
    'YAML, changed': draw(changed(train), 0.25).map((yaml) => ({ kind: 'train', yaml, overrides: [] })),
    'YAML, put together': draw(lines(paths.train), 0.25).map((yaml) => ({ kind: 'train', yaml, overrides: [] })),
    overrides: draw(overrides(paths.train), 0.25).map((drawn) => ({ kind: 'train', yaml: base, overrides: drawn })),
    'YAML and overrides of sft': draw(fc.tuple(changed(texts(/sft/)), fc.boolean(), overrides(paths.sft)), 0.13).map(
      ([yaml, whole, drawn]) => ({
        kind: 'sft',
        yaml: whole ? readFileSync('configs/reverse-text-sft.yaml', 'utf8') : yaml,
        overrides: whole ? drawn : [],
      }),
    ),
    'command lines': draw(fc.tuple(fc.constantFrom(...COMMANDS), words), 0.12).map(([name, rest]) => ({
      kind: 'command',
      args: [name, ...rest],
    })),
  };
}

export const configs: CampaignPart = {
  name: 'configs',
  run: ({ seed, full, say }) => judgeAll(cases(full ? 4000 : 200, seed), say),
};
