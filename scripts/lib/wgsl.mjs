/** Kernels as the library ships them. */

import { readFileSync } from 'node:fs';

/** Vite plugin: `.wgsl?raw` without comments and indentation. Lines stay where they are, so GPU errors still point right. */
export function shortWgsl() {
  return {
    name: 'short-wgsl',
    enforce: 'pre',
    load(id) {
      if (!id.endsWith('.wgsl?raw')) return null;
      const code = readFileSync(id.slice(0, -'?raw'.length), 'utf8');
      return `export default ${JSON.stringify(shorten(code))};`;
    },
  };
}

const shorten = (code) => code.replace(/\/\/.*$/gm, '').replace(/^[ \t]+|[ \t]+$/gm, '');
