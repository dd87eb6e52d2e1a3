/**
 * Opens `task.module` on the command line: a file, a package or an address. Files and packages run like our own code, addresses in a
 * sandbox.
 */

import { existsSync, readFileSync, realpathSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, extname, join, resolve, sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { describe, InputError } from '../../errors.ts';
import { checkTask, fetchSource, isUrl, moduleUrl, sha256Of } from '../../extensions/modules/index.ts';
import { isolatedTask, type IsolatedLimits } from '../../extensions/modules/isolated.ts';
import type { Task } from '../../tasks/task.ts';
import { readText } from '../files.ts';

export interface ModuleConfig {
  module: string;
  isolated?: boolean | undefined;
  options: Readonly<Record<string, unknown>>;
}

/** Returns the module's task. Throws InputError that says why the module has no task. */
export async function openModule(config: ModuleConfig, limits: IsolatedLimits): Promise<Task> {
  const { module, isolated, options } = config;
  if (isUrl(module)) {
    const entry = moduleUrl(module).href;
    if (isolated === false)
      throw new InputError(
        `task.isolated is false, but task.module is ${entry}: code of other hosts runs only in the sandbox. Save it as a file if you trust it.`,
      );
    return isolatedTask({ entry, root: `${new URL(entry).origin}/`, read: fetchSource }, options, limits);
  }
  const path = modulePath(module);
  return isolated ? isolatedTask(sourceOf(path), options, limits) : trustedTask(module, path, options);
}

/** Returns the file of a path, relative to the working folder, or of a package installed there. */
function modulePath(module: string): string {
  const path = resolve(module);
  const isPath = /^\.{0,2}[\\/]/.test(module) || path === module || /\.[cm]?[jt]s$/.test(module);
  if (existsSync(path) && statSync(path).isFile()) return path;
  if (isPath) throw new InputError(`task.module: there is no file ${module} in ${process.cwd()}.`);
  return packageFile(module);
}

/** Returns the file that `import "name"` in the working folder would load. */
function packageFile(name: string): string {
  const [, folder, rest] = /^((?:@[^/]+\/)?[^/]+)(\/.*)?$/.exec(name) ?? [];
  for (let at = process.cwd(); folder !== undefined; at = dirname(at)) {
    const root = join(at, 'node_modules', folder);
    if (existsSync(join(root, 'package.json'))) return join(root, entryOf(root, `.${rest ?? ''}`));
    if (at === dirname(at)) break;
  }
  throw new InputError(
    `task.module is "${name}", which is neither a file nor a package that is installed here: npm install it, or write ./NAME.js for a file.`,
  );
}

function entryOf(root: string, subpath: string): string {
  const json = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { exports?: unknown; main?: string };
  const { exports } = json;
  if (exports === undefined) return subpath === '.' ? (json.main ?? 'index.js') : subpath;
  const isTable = typeof exports === 'object' && exports !== null && Object.keys(exports).some((key) => key[0] === '.');
  const target = targetOf(isTable ? (exports as Record<string, unknown>)[subpath] : exports);
  if (target !== undefined && (isTable || subpath === '.')) return target;
  throw new InputError(`task.module: the package in ${root} does not export "${subpath}" for import.`);
}

function targetOf(target: unknown): string | undefined {
  if (typeof target === 'string') return target;
  if (Array.isArray(target)) return target.map(targetOf).find((found) => found !== undefined);
  if (typeof target !== 'object' || target === null) return undefined;
  const fitting = Object.entries(target).filter(([condition]) =>
    ['import', 'node', 'module', 'default'].includes(condition),
  );
  return fitting.map(([, found]) => targetOf(found)).find((found) => found !== undefined);
}

/** Returns the sources for a sandbox: files of the module's own folder and its subfolders. */
function sourceOf(path: string) {
  const file = realpathSync(path);
  const root = pathToFileURL(dirname(file) + sep).href;
  const read = async (address: string): Promise<string> => {
    const wanted = fileURLToPath(address);
    const real = existsSync(wanted) ? realpathSync(wanted) : wanted;
    if (!real.startsWith(dirname(file) + sep))
      throw new InputError(`task.module: ${wanted} is a link out of the folder of ${file}.`);
    return isTypeScript(real) ? stripped(real) : readText(real);
  };
  return { entry: pathToFileURL(file).href, root, read };
}

const isTypeScript = (path: string): boolean => /\.[cm]?ts$/.test(path);

/** Loads a module the way `--import` does, without a sandbox. */
async function trustedTask(name: string, path: string, options: ModuleConfig['options']): Promise<Task> {
  const refuse = (error: unknown): never => {
    const [line] = describe(error).split('\n');
    const place = new RegExp(`${basename(path).replaceAll('.', '\\.')}[^\\s)]*:\\d+`).exec(
      (error as Error).stack ?? '',
    )?.[0];
    const where = place === undefined ? '' : ` (${place})`;
    throw new InputError(`The task module ${name} does not load: ${line}${where}.`, { cause: error });
  };
  const exported = (await importFile(path).catch(refuse)) as { default?: unknown; task?: unknown };
  const given = exported.default ?? exported.task;
  const made = async () => (typeof given === 'function' ? (given as (options: unknown) => unknown)(options) : given);
  const task = checkTask(name, await made().catch(refuse));
  const text = isTypeScript(path) ? readFileSync(path, 'utf8') : await readText(path);
  return { ...task, sha256: await sha256Of(new Map([[basename(path), text]])) };
}

async function importFile(path: string): Promise<unknown> {
  const load = (file: string) => import(/* @vite-ignore */ pathToFileURL(file).href) as Promise<unknown>;
  if (!isTypeScript(path) || stripsTypes()) return load(path);
  const built = join(dirname(path), `.${basename(path, extname(path))}.${process.pid}.mjs`);
  writeFileSync(built, await bundled(path));
  try {
    return await load(built);
  } finally {
    rmSync(built, { force: true });
  }
}

/** True if Node reads TypeScript itself, from 22.18 on. */
const stripsTypes = (): boolean => Boolean((process.features as { typescript?: unknown }).typescript);

/** Returns JavaScript of one TypeScript file, for a sandbox. */
async function stripped(path: string): Promise<string> {
  const { stripTypeScriptTypes: strip } = process.getBuiltinModule('node:module') as {
    stripTypeScriptTypes?: (code: string) => string;
  };
  return strip ? strip(await readText(path)) : bundled(path);
}

interface Bundler {
  rolldown?: (options: object) => Promise<{ generate(options: object): Promise<{ output: { code: string }[] }> }>;
  build?: (options: object) => Promise<{ outputFiles: { text: string }[] }>;
}

/** Returns JavaScript of a TypeScript module and its imported files, by the user's own rolldown or esbuild. Packages stay imports. */
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
    `task.module: ${path} is TypeScript, which Node ${process.versions.node} does not read. Use Node 22.18 or newer, install vite or ` +
      'esbuild beside it, or give a .js file.',
  );
}

async function installed(name: string, from: string): Promise<Bundler> {
  try {
    const path = createRequire(from).resolve(name);
    return (await import(/* @vite-ignore */ pathToFileURL(path).href)) as Bundler;
  } catch {
    return {};
  }
}
