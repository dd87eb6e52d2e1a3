/** `--import FILE`: loads a user's module before the config is read, so that the config can name what the module registers. */

import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { basename, dirname, extname, join, relative, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { stripVTControlCharacters } from 'node:util';
import { describe, InputError, isA, stackOf } from '../errors.ts';
import { registerAdvantage, registerPolicyLoss, registerRecipe, sha256Of } from '../extensions/modules/index.ts';
import { defineLoss } from '../grpo/losses/index.ts';
import { registerAgentLoop } from '../rollout/agent/loop.ts';
import { type JsonlReward, scored } from '../extensions/tasks/index.ts';
import { sharedCount } from '../shared.ts';
import { givenBy } from '../tasks/problem.ts';
import type { Task } from '../tasks/task.ts';
import type { FlagSpec } from './args.ts';
import { readText } from './files.ts';
import { watchMainThread } from './process/blockedThread.ts';
import { currentIo, type Io, processIo } from './process/io.ts';

export const IMPORT_FLAG: Record<string, FlagSpec> = {
  import: {
    value: 'FILE',
    repeatable: true,
    help: 'a module that registers losses, advantages, recipes or agent loops; several may be given',
  },
};

/** Passed to the default function of an `--import` module, for modules that cannot import 'webgrpo'. */
const LIBRARY = { registerPolicyLoss, registerAdvantage, registerRecipe, registerAgentLoop, defineLoss };

type Register = (library: typeof LIBRARY) => unknown;

/** Calls the default function of an `--import` module. If the function throws, the error names the module. */
async function registerBy(file: string, register: Register): Promise<void> {
  const call = { kind: 'import', what: `The default function of --import ${file}`, expected: 'Correct the file' };
  await givenBy(
    call,
    () => register(LIBRARY),
    () => undefined,
  );
}

/** Files that have been imported successfully. Node runs a module only once, so a later import of the same file registers nothing. */
const registering = new Set<string>();

/** SHA-256 of the files of `--import`, by the io of the command. */
const imported = new WeakMap<Io, string>();

/** Returns the SHA-256 of the files that this command has imported by `--import`; undefined without the flag. */
export const importedHash = (): string | undefined => imported.get(currentIo());

/**
 * Imports the files of `--import`. A module registers by calls such as registerAgentLoop of 'webgrpo', or by a default function that
 * receives these functions as its argument. Throws InputError if a file is missing or registers nothing.
 */
export async function importModules(files: readonly string[]): Promise<void> {
  for (const file of files) {
    const before = sharedCount();
    const module = await importGiven('--import', file);
    if (typeof module.default === 'function') await registerBy(file, module.default as Register);
    else if (sharedCount() === before && !registering.has(resolve(file)))
      throw new InputError(
        `--import ${file}: it registers nothing, and it has no default export that is a function. Write ` +
          '"export default ({ registerPolicyLoss }) => { ... }", or call registerPolicyLoss of \'webgrpo\' in it.',
      );
    registering.add(resolve(file));
  }
  const texts = files.flatMap((file, i) =>
    [...localTexts(file)].map(([name, text], n) => [n === 0 ? `${i}` : `${i}/${name}`, text] as const),
  );
  if (files.length > 0) imported.set(currentIo(), await sha256Of(new Map(texts)));
}

/** Returns the texts of a module and of all files that it imports by relative paths, by their paths from the module's folder. */
export function localTexts(module: string): Map<string, string> {
  const texts = new Map<string, string>();
  const paths = [resolve(module)];
  for (const path of paths) {
    const name = relative(dirname(paths[0]), path);
    if (texts.has(name)) continue;
    const text = readFileSync(path, 'utf8');
    texts.set(name, text);
    const specifiers = text.matchAll(/\b(?:from|import)\s*\(?\s*(["'])(\.{1,2}\/[^"']+)\1/g);
    for (const [, , specifier] of specifiers) {
      const imports = resolve(dirname(path), specifier);
      if (existsSync(imports) && statSync(imports).isFile()) paths.push(imports);
    }
  }
  return texts;
}

/**
 * Imports a user's module, with the user's rights, and returns its default export, a function. Throws InputError.
 * @param setting setting that names the module, for errors
 * @param remedy last sentence of the error for a missing export: what to write in the module
 */
export async function defaultFunction(
  setting: string,
  file: string,
  remedy: string,
): Promise<(...args: unknown[]) => unknown> {
  const module = await importGiven(setting, file);
  if (typeof module.default === 'function') return module.default as (...args: unknown[]) => unknown;
  throw new InputError(`${setting} ${file}: it has no default export that is a function. ${remedy}.`);
}

async function importGiven(setting: string, file: string): Promise<{ default?: unknown }> {
  const path = resolve(file);
  if (!existsSync(path))
    throw new InputError(`${setting}: there is no ${file} in ${process.cwd()}. Give the path of a .js or .ts file.`);
  if (!statSync(path).isFile()) throw new InputError(`${setting} ${file} is a folder. Give a .js or .ts file.`);
  return load(path, `${setting} ${file}`);
}

/**
 * Returns the default function of a user's module as a reward. Throws InputError.
 * @param setting setting that names the module, for errors
 */
export async function importReward(setting: string, file: string): Promise<Task['reward']> {
  const reward = (await defaultFunction(
    setting,
    file,
    'Write "export default (sample) => sample.response.length"',
  )) as JsonlReward;
  return async (sample) => scored(await reward(sample));
}

/** Imports a module. If the module has a syntax error or throws while it loads, the error names the module. */
export async function load(
  path: string,
  what: string,
  timeoutMs?: number,
): Promise<{ default?: unknown; task?: unknown }> {
  if (currentIo() === processIo) watchMainThread();
  const call = { kind: 'import', what, expected: SETTLE, ...(timeoutMs && { timeoutMs }) };
  const module = await givenBy(
    call,
    () => importFile(path).catch(refusalOf(path, what)),
    (loaded) => loaded,
  );
  return module as { default?: unknown; task?: unknown };
}

/** Remedy for a module with a promise that is not settled. */
export const SETTLE = 'Resolve or reject each promise that it awaits';

/** Remedies for errors of Node, by their messages. */
const REMEDIES: readonly [RegExp, string][] = [
  [
    /Cannot find (package|module) '[^']*(webgrpo'|dist.lib.index\.js')/,
    'Install it there (its tarball: see README; in a clone, npm run build), or take its functions from the argument of the default export.',
  ],
  [/Unexpected token 'export'|Cannot use import/, 'Name the file .mjs, or write "type": "module" in package.json.'],
  [/Unknown file extension|import attribute/, 'Give a .js, .mjs or .ts file.'],
];

/** Returns a function that throws what was thrown as an InputError, with the place in the module and what to do. */
export const refusalOf =
  (path: string, what: string) =>
  (error: unknown): never => {
    if (isA(error, InputError)) throw new InputError(`${what} does not load: ${error.message}`, { cause: error });
    const [line] = describe(error).split('\n');
    const [, remedy] = REMEDIES.find(([kind]) => kind.test(line)) ?? [];
    const place = /:\d+\)$/.test(line) ? '' : syntaxPlace(path, error) || thrownPlace(path, error);
    throw new InputError(
      `${what} does not load: ${line.replace(/\.$/, '')}${place}. ${remedy ?? 'Correct the file.'}`,
      {
        cause: error,
      },
    );
  };

/** Returns the line of a module that an error's stack names, as " (file:line:column)"; '' if it names none. */
function thrownPlace(path: string, error: unknown): string {
  const name = basename(path).replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&');
  const place = new RegExp(`${name}[^\\s)]*:\\d+`).exec(stackOf(error) ?? '')?.[0];
  return place === undefined ? '' : ` (${place})`;
}

/** Returns the place of a syntax error in a JavaScript file, as " (file:line)"; '' for another error. Node's error itself has no place. */
export function syntaxPlace(path: string, error: unknown): string {
  if (!isA(error, SyntaxError) || isTypeScript(path)) return '';
  const { stderr } = spawnSync(process.execPath, ['--check', path], { encoding: 'utf8' });
  const [, place] = /^(.+:\d+)$/m.exec(stderr) ?? [];
  return place === undefined ? '' : ` (${place.replace('file://', '')})`;
}

/** True for the name of a TypeScript file. */
export const isTypeScript = (path: string): boolean => /\.[cm]?ts$/.test(path);

/** Imports a module of a user. TypeScript is run by Node itself (from 22.18 on), or compiled by the bundler that the user has installed. */
export async function importFile(path: string): Promise<unknown> {
  const load = (file: string) => import(/* @vite-ignore */ pathToFileURL(file).href) as Promise<unknown>;
  if (!isTypeScript(path) || stripsTypes()) return load(path);
  const built = join(dirname(path), `.${basename(path, extname(path))}.${process.pid}.mjs`);
  const code = await bundled(path).catch((error: unknown) => {
    throw firstOf(error);
  });
  writeFileSync(built, code);
  try {
    return await load(built);
  } finally {
    rmSync(built, { force: true });
  }
}

/** True if Node runs TypeScript without a compiler, as it does from 22.18 on. */
const stripsTypes = (): boolean => Boolean((process.features as { typescript?: unknown }).typescript);

/** Returns the JavaScript of a TypeScript file, for the sandbox. */
export async function stripped(path: string): Promise<string> {
  const { stripTypeScriptTypes: strip } = process.getBuiltinModule('node:module') as {
    stripTypeScriptTypes?: (code: string) => string;
  };
  return strip ? strip(await readText(path)) : bundled(path);
}

interface Bundler {
  rolldown?: (options: object) => Promise<{ generate(options: object): Promise<{ output: { code: string }[] }> }>;
  build?: (options: object) => Promise<{ outputFiles: { text: string }[] }>;
}

/**
 * Bundles a TypeScript module and the files that it imports into JavaScript, with the user's own rolldown or esbuild. Imports of packages
 * are not bundled.
 */
async function bundled(path: string): Promise<string> {
  const { rolldown } = await installed('rolldown', path);
  if (rolldown) {
    const bundle = await rolldown({ input: path, external: /^[^./]/, platform: 'node', logLevel: 'silent' });
    return (await bundle.generate({ format: 'esm' })).output[0].code;
  }
  const { build } = await installed('esbuild', path);
  const settings = { bundle: true, write: false, format: 'esm', platform: 'node', packages: 'external' };
  if (build) return (await build({ entryPoints: [path], ...settings })).outputFiles[0].text;
  throw new InputError(
    `${path} is TypeScript, which Node ${process.versions.node} does not read. Use Node 22.18 or newer, install vite or ` +
      'esbuild beside it, or give a .js file.',
  );
}

interface BundlerError {
  errors?: { text?: string; message?: string; location?: Place | null; loc?: Place }[];
}
interface Place {
  file: string;
  line: number;
}

/** Returns the first error of a bundler, in one line with file and line; any other error unchanged. */
function firstOf(error: unknown): unknown {
  const [first] = (error as BundlerError).errors ?? [];
  if (!first) return error;
  const [text] = stripVTControlCharacters(first.text ?? first.message ?? '').split('\n');
  const place = first.location ?? first.loc;
  return new Error(text.replace(/^\[\w+\] /, '').replace(/\.$/, '') + (place ? ` (${place.file}:${place.line})` : ''));
}

async function installed(name: string, from: string): Promise<Bundler> {
  try {
    const path = createRequire(from).resolve(name);
    return (await import(/* @vite-ignore */ pathToFileURL(path).href)) as Bundler;
  } catch {
    return {};
  }
}
