/**
 * `npm run docs` writes the API reference, docs/api, from the docstrings of every entry of package.json; `npm pack` runs it, and git ignores
 * the folder. `--check` leaves the folder as it is. Both fail if an exported name, or a member of one, has no docstring.
 */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Application } from 'typedoc';
import { ROOT } from './setup.mjs';

/** Names that need no docstring: config settings, which docs/reference/config.md documents, and the `name` of error classes. */
const SAID_ELSEWHERE = /__type|Error\.name |src\/grpo\/config\/|src\/extensions\/sft\/schema/;

/** Package entry that the reference omits: a worker script without exports. */
const NO_ENTRY = './worker';

const isCheck = process.argv.includes('--check');
const unknown = process.argv.slice(2).find((argument) => argument !== '--check');
if (unknown !== undefined) {
  process.stderr.write(`Unknown argument "${unknown}"; allowed: --check.\n`);
  process.exit(2);
}
const out = isCheck ? mkdtempSync(join(tmpdir(), 'webgrpo-docs-')) : join(ROOT, 'docs', 'api');

/** @type {Record<string, { types?: string }>} */
const exported = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).exports;
/** Source file and public name of each package entry. */
const entries = Object.entries(exported).flatMap(([name, { types }]) => {
  const source = /^\.\/dist\/types\/src\/(.*)\.d\.ts$/.exec(types ?? '')?.[1];
  return source && name !== NO_ENTRY ? [{ source, name: join('webgrpo', name) }] : [];
});

const app = await Application.bootstrapWithPlugins({
  entryPoints: entries.map(({ source }) => `src/${source}.ts`),
  tsconfig: join(ROOT, 'tsconfig.build.json'),
  plugin: ['typedoc-plugin-markdown'],
  name: 'webgrpo: API',
  readme: 'none',
  out,
  logLevel: 'None',
  excludePrivate: true,
  excludeInternal: true,
  excludeExternals: true,
  disableSources: true,

  validation: { notExported: false, notDocumented: true, invalidLink: true },
  // Options of the plugin.
  ...{ outputFileStrategy: 'modules', hidePageHeader: true, hideBreadcrumbs: true, entryFileName: 'README' },
  ...{
    parametersFormat: 'table',
    interfacePropertiesFormat: 'table',
    classPropertiesFormat: 'table',
    typeDeclarationFormat: 'table',
  },
});

/** @type {string[]} */
const warnings = [];
app.logger.warn = (/** @type {string} */ message) => void warnings.push(message);
app.logger.error = (/** @type {string} */ message) => void warnings.push(message);

try {
  const project = await app.convert();
  if (!project) throw new Error(`typedoc made nothing of the sources:\n${warnings.join('\n')}`);
  app.validate(project);
  for (const module of project.children ?? []) module.name = nameOf(module.name);
  await app.generateOutputs(project);
  const problems = warnings.filter((warning) => !SAID_ELSEWHERE.test(warning));
  problems.forEach((problem) => console.error(problem));
  process.exitCode = problems.length === 0 ? 0 : 1;
} finally {
  if (isCheck) rmSync(out, { recursive: true, force: true });
}

/**
 * Renames an entry in the reference: typedoc uses its path.
 * @param {string} path
 */
function nameOf(path) {
  return entries.find(({ source }) => source === path || source === `${path}/index`)?.name ?? path;
}
