/**
 * Opens the task that `task.module` names on the command line: a file, an installed package or a URL. Files and packages run unsandboxed
 * with the user's rights, modules of a URL in a sandbox.
 */

import { existsSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { dirname, join, resolve, sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { InputError } from '../errors.ts';
import { checkTask, fetchSource, isUrl, moduleUrl, OWN_CALL_MS, sha256Of } from '../extensions/modules/index.ts';
import { isolatedTask, type IsolatedLimits } from '../extensions/modules/isolated.ts';
import { checkedTask } from '../tasks/checkedTask.ts';
import { givenBy } from '../tasks/problem.ts';
import type { Task } from '../tasks/task.ts';
import { readText } from './files.ts';
import { isTypeScript, load, localTexts, refusalOf, SETTLE, stripped } from './importModule.ts';

export interface ModuleConfig {
  module: string;
  isolated?: boolean | undefined;
  options: Readonly<Record<string, unknown>>;
}

/** Opens the module and returns its task. Throws InputError that says why the module has no task. */
export async function openModule(config: ModuleConfig, limits: IsolatedLimits): Promise<Task> {
  const { module, isolated, options } = config;
  const sandboxed = async (source: Parameters<typeof isolatedTask>[0]) =>
    checkedTask(await isolatedTask(source, options, limits));
  if (isUrl(module)) {
    const entry = moduleUrl(module).href;
    if (isolated === false)
      throw new InputError(
        `task.isolated is false, but task.module is ${entry}: code of other hosts runs only in the sandbox. Save it as a file if you trust it.`,
      );
    return sandboxed({ entry, root: `${new URL(entry).origin}/`, read: fetchSource });
  }
  const path = modulePath(module);
  if (isolated) return sandboxed(sourceOf(path));
  return trustedTask(module, path, options, limits.timeoutMs);
}

/** Returns the module's file: a path relative to the working folder, or the entry of a package that is installed there. */
function modulePath(module: string): string {
  const path = resolve(module);
  const isPath = /^\.{0,2}[\\/]/.test(module) || path === module || /\.[cm]?[jt]s$/.test(module);
  if (existsSync(path) && statSync(path).isFile()) return path;
  if (isPath)
    throw new InputError(
      `task.module: there is no file ${module} in ${process.cwd()}. Start the command in the folder of the task, or set task.module.`,
    );
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
    `task.module is "${name}", which is neither a file nor a package that is installed here. Install it with npm, or write ./NAME.js for a file.`,
  );
}

function entryOf(root: string, subpath: string): string {
  const json = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { exports?: unknown; main?: string };
  const { exports } = json;
  if (exports === undefined) return subpath === '.' ? (json.main ?? 'index.js') : subpath;
  const isTable = typeof exports === 'object' && exports !== null && Object.keys(exports).some((key) => key[0] === '.');
  const target = targetOf(isTable ? (exports as Record<string, unknown>)[subpath] : exports);
  if (target !== undefined && (isTable || subpath === '.')) return target;
  throw new InputError(
    `task.module: the package in ${root} does not export "${subpath}" for import. Name one of its exports.`,
  );
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
      throw new InputError(`task.module: ${wanted} is a link out of the folder of ${file}. Copy the file there.`);
    return isTypeScript(real) ? stripped(real) : readText(real);
  };
  return { entry: pathToFileURL(file).href, root, read };
}

/** Loads a module without a sandbox, as `--import` does. */
async function trustedTask(
  name: string,
  path: string,
  options: ModuleConfig['options'],
  timeoutMs = OWN_CALL_MS,
): Promise<Task> {
  const what = `The task module ${name}`;
  const exported = await load(path, what, timeoutMs);
  const given = exported.default ?? exported.task;
  const made = async () => (typeof given === 'function' ? (given as (options: unknown) => unknown)(options) : given);
  const call = { kind: 'task', what, expected: SETTLE, timeoutMs };
  const task = await givenBy(
    call,
    () => made().catch(refusalOf(path, what)),
    (returned) => checkTask(name, returned, timeoutMs),
  );
  return { ...task, sha256: await sha256Of(localTexts(path)) };
}
