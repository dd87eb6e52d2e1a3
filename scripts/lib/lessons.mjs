/** The pages of lessons, demo/lessons/NAME/index.html, and the Vite plugin that completes their HTML. */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { ROOT } from '../setup.mjs';

const LESSONS = join(ROOT, 'demo', 'lessons');

/**
 * Returns the HTML files of the contents page, of all lessons and of the pages for a class, by folder name.
 * @returns {Record<string, string>}
 */
export const lessonPages = () =>
  Object.fromEntries(
    [
      ['lessons', join(LESSONS, 'index.html')],
      ...readdirSync(LESSONS).map((name) => [name, join(LESSONS, name, 'index.html')]),
    ].filter(([, file]) => existsSync(file)),
  );

/**
 * Returns the lessons that exist, in their order: folder, number, title, and first paragraph.
 * @returns {{ folder: string, number: number, title: string, lead: string }[]}
 */
export function lessons() {
  const folders = readdirSync(LESSONS).filter(
    (name) => /^\d-/.test(name) && existsSync(join(LESSONS, name, 'index.html')),
  );
  return folders.sort().map((folder) => {
    const html = readFileSync(join(LESSONS, folder, 'index.html'), 'utf8');
    const [title, lead] = [/<h1>([^<]*)<\/h1>/, /<p class="lead">([^]*?)<\/p>/].map(
      (part) => part.exec(html)?.[1].trim() ?? '',
    );
    return { folder, number: Number(folder[0]), title, lead };
  });
}

/** Returns the list of lessons for the contents page, as HTML. */
const lessonList = () =>
  `<ol class="contents">${lessons()
    .map(
      ({ folder, number, title, lead }) =>
        `<li value="${number}" data-lesson="${folder}"><a href="./${folder}/index.html">${title}</a><br />${lead.replace(/^Lesson \d, /, '').replace(/^about/, 'About')}</li>`,
    )
    .join('')}</ol>`;

/**
 * Returns the link from a lesson to the next one, or from the last lesson to the questions; '' for pages that are not lessons.
 * @param {string} folder
 */
function nextLink(folder) {
  const all = lessons();
  const at = all.findIndex((one) => one.folder === folder);
  if (at < 0) return '';
  const { folder: to, number, title } = all[at + 1] ?? {};
  const link = to
    ? `<a href="../${to}/index.html">Lesson ${number}: ${title}</a>`
    : '<a href="../index.html#questions">The six questions again</a>';
  return `<nav class="next" aria-label="Next">Next: ${link}</nav>`;
}

/**
 * Returns a schedule without the rows of lessons that do not exist. Start times are computed from the rows that remain.
 * @param {string} rows lines of "minutes | numbers of lessons | activity". The numbers are empty for an activity that needs no lesson
 */
function schedule(rows) {
  const exist = new Set(lessons().map(({ number }) => `${number}`));
  let start = 0;
  const shown = rows
    .trim()
    .split('\n')
    .flatMap((row) => {
      const [minutes, numbers, what] = row.split('|').map((cell) => cell.trim());
      if (
        !numbers
          .split(' ')
          .filter(Boolean)
          .every((number) => exist.has(number))
      )
        return [];
      const at = `${Math.floor(start / 60)}:${String(start % 60).padStart(2, '0')}`;
      start += Number(minutes);
      return [`<tr><td>${at}</td><td>${minutes} min</td><td>${what}</td></tr>`];
    });
  const head = '<thead><tr><th>from</th><th>for</th><th>what</th></tr></thead>';
  return `<table>${head}<tbody>${shown.join('')}</tbody></table>`;
}

const escaped = (/** @type {string} */ text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');

/**
 * Vite plugin: gives a lesson the icon of the main page, and a link to the next lesson. Replaces `<!-- still 1.2 -->` by the picture that the lesson's stills.ts draws from
 * recorded data, `<!-- file x.js -->` by the text of that file, `<!-- lessons -->` by the list of lessons, and `<!-- schedule ... -->` by a
 * table of the lessons that exist.
 * @returns {import('vite').Plugin}
 */
export function lessonStills() {
  return {
    name: 'lesson-stills',
    transformIndexHtml: {
      order: 'pre',
      async handler(html, { filename }) {
        const folder = dirname(filename);
        if (html.includes('rel="icon"')) return html; // the main page
        const [icon] = /<link\s+rel="icon"[^>]*>/.exec(readFileSync(join(LESSONS, '..', 'index.html'), 'utf8')) ?? [''];
        const listed = html
          .replace('</head>', `${icon}</head>`)
          .replace('</main>', `${nextLink(basename(folder))}</main>`)
          .replace('<!-- lessons -->', lessonList)
          .replace(/<!-- schedule\n([^]*?)-->/g, (_, rows) => schedule(rows));
        if (!listed.includes('<!-- still ')) return listed;
        const { runnerImport } = await import('vite');
        const { module } = await /** @type {typeof runnerImport<{ STILLS: Record<string, string> }>} */ (runnerImport)(
          join(folder, 'stills.ts'),
          { configFile: false, logLevel: 'error' },
        );
        return listed
          .replace(/<!-- still ([\w.]+) -->/g, (_, number) => {
            if (module.STILLS[number]) return module.STILLS[number];
            throw new Error(`${folder}/stills.ts has no picture ${number}.`);
          })
          .replace(/<!-- file ([\w.-]+) -->/g, (_, name) => escaped(readFileSync(join(folder, name), 'utf8')));
      },
    },
  };
}

/** A rule that only demo/lessons/kit/lesson.css has. */
const KIT_RULE = '[data-embed]';

/**
 * Vite plugin: links the styles of the kit before a lesson's own, which overrule them. The bundler orders them by its chunks.
 * @returns {import('vite').Plugin}
 */
export function kitFirst() {
  return {
    name: 'kit-first',
    transformIndexHtml: {
      order: 'post',
      handler(html, { bundle = {} }) {
        const links = html.match(/<link rel="stylesheet"[^>]*>/g) ?? [];
        const kit = links.find((link) => {
          const made = bundle[/href="[./]*([^"]+)"/.exec(link)?.[1] ?? ''];
          return made?.type === 'asset' && String(made.source).includes(KIT_RULE);
        });
        const [first] = links;
        return !kit || !first || kit === first ? html : html.replace(kit, '').replace(first, kit + first);
      },
    },
  };
}
