import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

interface MatmulGenerator {
  matmulWgsl: (variant: unknown) => string;
  variants: Record<string, unknown>;
}
interface AttentionGenerator {
  HEAD_DIMS: number[];
  rowsFor: (D: number) => number;
  forward: (shape: { D: number; R: number }) => string;
  backwardQ: (shape: { D: number; R: number }) => string;
  backwardKV: (shape: { D: number; R: number }) => string;
}
const load = (script: string): Promise<unknown> => import(/* @vite-ignore */ `../../scripts/${script}.mjs`);
const { matmulWgsl, variants } = (await load('lib/matmulTile')) as MatmulGenerator;
const generator = (await load('gen-attention')) as AttentionGenerator;

const printed = new Map(Object.entries(variants).map(([name, v]) => [`matmul_${name}.wgsl`, matmulWgsl(v)]));
for (const D of generator.HEAD_DIMS) {
  const shape = { D, R: generator.rowsFor(D) };
  printed.set(`attention_d${D}.wgsl`, generator.forward(shape));
  printed.set(`attention_bwd_q_d${D}.wgsl`, generator.backwardQ(shape));
  printed.set(`attention_bwd_kv_d${D}.wgsl`, generator.backwardKV(shape));
}

test('every printed kernel is there, and no other looks like one', () => {
  const files = readdirSync('kernels').filter((f) => /^matmul_|_d\d+\.wgsl$/.test(f));
  expect(files.sort()).toEqual([...printed.keys()].sort());
});

test.each([...printed.keys()])('kernels/%s is what its generator in scripts/ prints', (file) => {
  expect(readFileSync(`kernels/${file}`, 'utf8')).toBe(printed.get(file));
});
