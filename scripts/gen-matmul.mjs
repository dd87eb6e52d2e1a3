// Writes kernels/matmul_<variant>.wgsl, every variant:
//   node scripts/gen-matmul.mjs
import { writeFileSync } from 'node:fs';
import { matmulWgsl, variants } from './lib/matmulTile.mjs';
import { packedVariants, packedWgsl } from './lib/packedTile.mjs';

const write = (name, text) => writeFileSync(new URL(`../kernels/matmul_${name}.wgsl`, import.meta.url), text);

for (const [name, variant] of Object.entries(variants)) write(name, matmulWgsl(variant));
for (const [name, variant] of Object.entries(packedVariants)) write(name, packedWgsl(variant));
