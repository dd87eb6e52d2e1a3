/** The pages of lessons, demo/lessons/NAME/index.html, and the Vite plugin that completes their HTML. */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { ROOT } from '../setup.mjs';

const LESSONS = join(ROOT, 'demo', 'lessons');

/**
 * Returns the HTML files of all lessons by the lesson's name.
 * @returns {Record<string, string>}
 */
export const lessonPages = () =>
  Object.fromEntries(
    readdirSync(LESSONS)
      .map((name) => [name, join(LESSONS, name, 'index.html')])
      .filter(([, file]) => existsSync(file)),
  );

const escaped = (/** @type {string} */ text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');

/**
 * Vite plugin: replaces `<!-- still 1.2 -->` in a lesson by the picture that its stills.ts draws from recorded data, and `<!-- file x.js -->` by
 * the text of that file.
 * @returns {import('vite').Plugin}
 */
export function lessonStills() {
  return {
    name: 'lesson-stills',
    transformIndexHtml: {
      order: 'pre',
      async handler(html, { filename }) {
        if (!html.includes('<!-- still ')) return html;
        const folder = dirname(filename);
        const { runnerImport } = await import('vite');
        const { module } = await /** @type {typeof runnerImport<{ STILLS: Record<string, string> }>} */ (runnerImport)(
          join(folder, 'stills.ts'),
          { configFile: false, logLevel: 'error' },
        );
        return html
          .replace(/<!-- still ([\d.]+) -->/g, (_, number) => {
            if (module.STILLS[number]) return module.STILLS[number];
            throw new Error(`${folder}/stills.ts has no picture ${number}.`);
          })
          .replace(/<!-- file ([\w.-]+) -->/g, (_, name) => escaped(readFileSync(join(folder, name), 'utf8')));
      },
    },
  };
}
