/**
 * Opens the task that `task.module` names on the command line: a file, an installed package or a URL. Files and packages run unsandboxed
 * with the user's rights, modules of a URL in a sandbox.
 */

import { existsSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve, sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { describe, InputError } from '../errors.ts';
import { checkTask, fetchSource, isUrl, moduleUrl, sha256Of } from '../extensions/modules/index.ts';
import { isolatedTask, type IsolatedLimits } from '../extensions/modules/isolated.ts';
import type { Task } from '../tasks/task.ts';
import { readText } from './files.ts';
import { importFile, isTypeScript, stripped } from './importModule.ts';

export interface ModuleConfig {
  module: string;
  isolated?: boolean | undefined;
  options: Readonly<Record<string, unknown>>;
}

/** Opens the module and returns its task. Throws InputError that says why the module has no task. */
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

/** Returns the module's file: a path relative to the working folder, or the entry of a package that is installed there. */
function modulePath(module: string): string {
  const path = resolve(module);
  const isPath = /^\.{0,2}[\\/]/.test(module) || path === module || /\.[cm]?[jt]s$/.test(module);
  if (existsSync(path) && statSync(path).isFile()) return path;
  if (isPath) throw new InputError(`task.module: there is no file ${module} in ${process.cwd()}.`);
  return packageFile(module);
}

/** Returns the file that `import "name"` would load in the working folder. */
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

/** Returns the source of a module for the sandbox, which can read only files in the module's folder and its subfolders. */
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

/** Loads a module without a sandbox, as `--import` does. */
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
