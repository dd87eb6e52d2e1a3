import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';

interface MatmulGenerator {
  matmulWgsl: (variant: unknown) => string;
  variants: Record<string, unknown>;
}
interface PackedGenerator {
  packedWgsl: (variant: unknown) => string;
  packedVariants: Record<string, unknown>;
}
interface AttentionGenerator {
  HEAD_DIMS: number[];
  printed: (D: number) => Record<string, () => string>;
}
const load = (script: string): Promise<unknown> => import(/* @vite-ignore */ `../../scripts/${script}.mjs`);
const { matmulWgsl, variants } = (await load('lib/matmulTile')) as MatmulGenerator;
const { packedWgsl, packedVariants } = (await load('lib/packedTile')) as PackedGenerator;
const attention = (await load('lib/attentionTile')) as AttentionGenerator;

const printed = new Map(Object.entries(variants).map(([name, v]) => [`matmul_${name}.wgsl`, matmulWgsl(v)]));
for (const [name, v] of Object.entries(packedVariants)) printed.set(`matmul_${name}.wgsl`, packedWgsl(v));
for (const [name, print] of attention.HEAD_DIMS.flatMap((D) => Object.entries(attention.printed(D))))
  printed.set(`${name}.wgsl`, print());

test('every printed kernel is there, and no other looks like one', () => {
  const files = readdirSync('kernels').filter((f) => /^matmul_|_d\d+\.wgsl$/.test(f));
  expect(files.sort()).toEqual([...printed.keys()].sort());
});

test.each([...printed.keys()])('kernels/%s is what its generator in scripts/ prints', (file) => {
  expect(readFileSync(`kernels/${file}`, 'utf8')).toBe(printed.get(file));
});

test('printers without their comments, as the library has them, print the same but for comments', async () => {
  const { withoutComments } = (await load('lib/wgsl')) as { withoutComments: (source: string) => string };
  const folder = mkdtempSync(join(tmpdir(), 'printers-'));
  for (const name of ['matmulTile', 'matmulWorkgroup', 'packedTile', 'attentionTile', 'attentionShared', 'wgslText'])
    writeFileSync(join(folder, `${name}.mjs`), withoutComments(readFileSync(`scripts/lib/${name}.mjs`, 'utf8')));
  const bare = (await import(/* @vite-ignore */ join(folder, 'matmulTile.mjs'))) as MatmulGenerator;
  const words = (code: string) =>
    code
      .replace(/\/\/.*$/gm, '')
      .split(/\s+/)
      .filter(Boolean)
      .join(' ');
  for (const [name, v] of Object.entries(variants))
    expect(words(bare.matmulWgsl(bare.variants[name])), name).toBe(words(matmulWgsl(v)));
  const barePacked = (await import(/* @vite-ignore */ join(folder, 'packedTile.mjs'))) as PackedGenerator;
  for (const [name, v] of Object.entries(packedVariants))
    expect(words(barePacked.packedWgsl(barePacked.packedVariants[name])), name).toBe(words(packedWgsl(v)));
  const bareAttention = (await import(/* @vite-ignore */ join(folder, 'attentionTile.mjs'))) as AttentionGenerator;
  for (const D of attention.HEAD_DIMS)
    for (const [name, print] of Object.entries(attention.printed(D)))
      expect(words(bareAttention.printed(D)[name]()), name).toBe(words(print()));
  rmSync(folder, { recursive: true });
});
