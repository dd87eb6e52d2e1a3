/**
 * Content Security Policies of webgrpo's pages: they limit what a page can run and load, so that text from a run or a model is never
 * executed.
 */

import { createHash } from 'node:crypto';

/** Rules of all pages: no frames, plugins, forms or `base` elements. Inline styles are allowed, because charts set them. */
const COMMON = "default-src 'none'; style-src 'self' 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/**
 * Adds the policy of a report: only its own script runs, and nothing is loaded.
 * @param {string} html
 */
export const withReportPolicy = (html) => withPolicy(html, `${COMMON}; img-src data:; script-src ${hashes(html)}`);

/**
 * Adds the policy of the page in one file, which has no server.
 * @param {string} html
 * @param {string} [scripts] additional sources of scripts, starting with a blank
 */
export const withFilePolicy = (html, scripts = '') =>
  withPolicy(
    html,
    `${COMMON}; img-src data: blob:; connect-src https: http: ws: wss: blob: data:; worker-src blob:; ` +
      `script-src 'wasm-unsafe-eval'${scripts} ${hashes(html)}`,
  );

/**
 * Vite plugin: adds the page's policy. The policy allows the page's own scripts, workers and files, and models from any host, because users
 * can name hosts. When the page opens, it restricts its connections further, depending on a room in its address
 * (demo/state/address/room.ts).
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
 * Returns the policy's hashes of the inline scripts in a page.
 * @param {string} html
 */
function hashes(html) {
  const scripts = [...html.matchAll(/<script(?: type="module")?(?: crossorigin)?>([^]*?)<\/script>/g)];
  return scripts.map(([, text]) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`).join(' ');
}
