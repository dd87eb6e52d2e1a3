/** Kernels as the library ships them. */

import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const MATMUL = fileURLToPath(new URL('./matmulTile.mjs', import.meta.url));

/**
 * Vite plugin: `.wgsl?raw` without comments and indentation. Lines stay where they are, so GPU errors still point right. The
 * printed matrix products are printed again when the library loads: their text is ten times as long as what prints it.
 */
export function shortWgsl() {
  return {
    name: 'short-wgsl',
    enforce: 'pre',
    load(id) {
      if (!id.endsWith('.wgsl?raw')) return null;
      const variant = /\/matmul_(\w+)\.wgsl\?raw$/.exec(id)?.[1];
      if (variant)
        return `import { matmulWgsl, variants } from ${JSON.stringify(MATMUL)}; export default matmulWgsl(variants.${variant});`;
      const code = readFileSync(id.slice(0, -'?raw'.length), 'utf8');
      return `export default ${JSON.stringify(shorten(code))};`;
    },
  };
}

const shorten = (code) => code.replace(/\/\/.*$/gm, '').replace(/^[ \t]+|[ \t]+$/gm, '');
