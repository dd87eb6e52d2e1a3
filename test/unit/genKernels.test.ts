import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

interface MatmulGenerator {
  matmulWgsl: (variant: unknown) => string;
  variants: Record<string, unknown>;
}
interface AttentionGenerator {
  HEAD_DIMS: number[];
  printed: (D: number) => Record<string, () => string>;
}
const load = (script: string): Promise<unknown> => import(/* @vite-ignore */ `../../scripts/${script}.mjs`);
const { matmulWgsl, variants } = (await load('lib/matmulTile')) as MatmulGenerator;
const attention = (await load('lib/attentionTile')) as AttentionGenerator;

const printed = new Map(Object.entries(variants).map(([name, v]) => [`matmul_${name}.wgsl`, matmulWgsl(v)]));
for (const [name, print] of attention.HEAD_DIMS.flatMap((D) => Object.entries(attention.printed(D))))
  printed.set(`${name}.wgsl`, print());

test('every printed kernel is there, and no other looks like one', () => {
  const files = readdirSync('kernels').filter((f) => /^matmul_|_d\d+\.wgsl$/.test(f));
  expect(files.sort()).toEqual([...printed.keys()].sort());
});

test.each([...printed.keys()])('kernels/%s is what its generator in scripts/ prints', (file) => {
  expect(readFileSync(`kernels/${file}`, 'utf8')).toBe(printed.get(file));
});
