// Writes kernels/attention_d<D>.wgsl and the two backward kernels, for every head dim:
//   node scripts/gen-attention.mjs
import { writeFileSync } from 'node:fs';
import { HEAD_DIMS, printed } from './lib/attentionTile.mjs';

for (const [name, print] of HEAD_DIMS.flatMap((D) => Object.entries(printed(D))))
  writeFileSync(new URL(`../kernels/${name}.wgsl`, import.meta.url), print());
