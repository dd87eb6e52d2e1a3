/** Kernels as the library ships them. */

import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const here = (file) => fileURLToPath(new URL(file, import.meta.url));

/** Printed kernels by file name, and what prints them: an import and an expression. */
const PRINTED = [
  [
    /\/matmul_(packed_\w+)\.wgsl/,
    'packedWgsl, packedVariants',
    './packedTile.mjs',
    (name) => `packedWgsl(packedVariants.${name})`,
  ],
  [/\/matmul_(\w+)\.wgsl/, 'matmulWgsl, variants', './matmulTile.mjs', (name) => `matmulWgsl(variants.${name})`],
  [/\/(attention\w*_d(\d+))\.wgsl/, 'printed', './attentionTile.mjs', (name, D) => `printed(${D}).${name}()`],
];

const PRINTERS = /(matmulTile|matmulWorkgroup|packedTile|attentionTile|attentionShared|wgslText)\.mjs$/;

/** A printer's source without comments, its own and those it prints, where nothing else is on their line behind them. */
export const withoutComments = (source) =>
  source.replace(/^[ \t]*\/\/.*$/gm, '').replace(/([,;{])[ \t]+\/\/ [^'`\n]*$/gm, '$1');

/**
 * Vite plugin: `.wgsl?raw` without comments and indentation. Lines stay where they are, so GPU errors still point right.
 * Printed kernels are printed again when the library loads: their text is ten times as long as what prints it.
 */
export function shortWgsl() {
  return {
    name: 'short-wgsl',
    enforce: 'pre',
    load(id) {
      if (PRINTERS.test(id)) return withoutComments(readFileSync(id, 'utf8'));
      if (!id.endsWith('.wgsl?raw')) return null;
      for (const [pattern, names, file, expression] of PRINTED) {
        const match = pattern.exec(id);
        if (match)
          return `import { ${names} } from ${JSON.stringify(here(file))}; export default ${expression(...match.slice(1))};`;
      }
      const code = readFileSync(id.slice(0, -'?raw'.length), 'utf8');
      return `export default ${JSON.stringify(shorten(code))};`;
    },
  };
}

const shorten = (code) => code.replace(/\/\/.*$/gm, '').replace(/^[ \t]+|[ \t]+$/gm, '');
