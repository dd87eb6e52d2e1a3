/** Content Security Policies of our pages: what a page may run and load, so that text from a run or a model stays text. */

import { createHash } from 'node:crypto';

/** Everywhere: no frames, plugins, forms or other base; styles may be inline, since charts set them. */
const COMMON = "default-src 'none'; style-src 'self' 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/**
 * A report's: its own script alone, and nothing is loaded.
 * @param {string} html
 */
export const withReportPolicy = (html) => withPolicy(html, `${COMMON}; img-src data:; script-src ${hashes(html)}`);

/**
 * The page's in one file, which has no server of its own.
 * @param {string} html
 */
export const withFilePolicy = (html) =>
  withPolicy(
    html,
    `${COMMON}; img-src data: blob:; connect-src https: http: ws: wss: blob: data:; worker-src blob:; ` +
      `script-src 'wasm-unsafe-eval' ${hashes(html)}`,
  );

/**
 * The page's: its own scripts, workers and files; models come from any host that a person names. What it connects to is narrowed as it
 * opens, by whether its address has a room (demo/state/address/room.ts).
 * Vite plugin.
 * @returns {import('vite').Plugin}
 */
export function pagePolicy() {
  return {
    name: 'page-policy',
    transformIndexHtml: {
      order: 'post',
      handler: (html) =>
        withPolicy(
          html,
          `${COMMON}; img-src 'self' data: blob:; connect-src 'self' https: http: ws: wss: blob: data:; worker-src 'self' blob:; ` +
            `script-src 'self' 'wasm-unsafe-eval' ${hashes(html)}`,
        ),
    },
  };
}

/**
 * @param {string} html
 * @param {string} policy
 */
const withPolicy = (html, policy) =>
  html.replace(
    /<meta charset="utf-8" ?\/?>/,
    (charset) => `${charset}\n    <meta http-equiv="Content-Security-Policy" content="${policy}" />`,
  );

/**
 * Hashes of the scripts that stand in a page.
 * @param {string} html
 */
function hashes(html) {
  const scripts = [...html.matchAll(/<script(?: type="module")?(?: crossorigin)?>([^]*?)<\/script>/g)];
  return scripts.map(([, text]) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`).join(' ');
}
