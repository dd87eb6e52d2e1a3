// Writes kernels/matmul_<variant>.wgsl, every variant:
//   node scripts/gen-matmul.mjs
import { writeFileSync } from 'node:fs';
import { matmulWgsl, variants } from './lib/matmulTile.mjs';

for (const [name, variant] of Object.entries(variants))
  writeFileSync(new URL(`../kernels/matmul_${name}.wgsl`, import.meta.url), matmulWgsl(variant));
