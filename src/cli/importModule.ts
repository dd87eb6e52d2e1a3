/** `--import FILE`: loads a user's module before the config is read, so that the config can name what the module registers. */

import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, extname, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, InputError, isA } from '../errors.ts';
import { registerAdvantage, registerPolicyLoss, registerRecipe } from '../grpo/config/register.ts';
import { defineLoss } from '../grpo/losses/index.ts';
import { registerAgentLoop } from '../rollout/agent/loop.ts';
import { type JsonlReward, scored } from '../extensions/tasks/index.ts';
import { sharedCount } from '../shared.ts';
import type { Task } from '../tasks/task.ts';
import type { FlagSpec } from './args.ts';
import { readText } from './files.ts';

export const IMPORT_FLAG: Record<string, FlagSpec> = {
  import: {
    value: 'FILE',
    repeatable: true,
    help: 'a module that registers losses, advantages, recipes or agent loops; several may be given',
  },
};

/** Argument of the module's default function, for modules that cannot import the library. */
const LIBRARY = { registerPolicyLoss, registerAdvantage, registerRecipe, registerAgentLoop, defineLoss };

type Register = (library: typeof LIBRARY) => unknown;

/** Calls a module's default function. An error that it throws says that the module is at fault. */
async function registerBy(file: string, register: Register): Promise<void> {
  try {
    await register(LIBRARY);
  } catch (error) {
    if (isA(error, InputError)) throw error;
    throw new InputError(`--import ${file}: its default function throws ${describe(error).split('\n')[0]}.`, {
      cause: error,
    });
  }
}

/** Files that have registered something. Node runs a module only once. */
const registering = new Set<string>();

/**
 * Loads modules, which register by `import { registerAgentLoop } from 'webgrpo'` or by a default function, which is called with the
 * same functions. Throws InputError for a missing file, or one that registers nothing.
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
}

/**
 * Returns the default export of a user's module, which runs with the user's rights.
 * @param setting name of the setting in errors
 * @param remedy end of the error's sentence: what to write if the export is missing
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
  if (!existsSync(path)) throw new InputError(`${setting}: there is no ${file}.`);
  return load(path, `${setting} ${file}`);
}

/** Returns the reward that is a module's default function. Throws InputError. @param setting name of the setting in errors */
export async function importReward(setting: string, file: string): Promise<Task['reward']> {
  const reward = (await defaultFunction(
    setting,
    file,
    'Write "export default (sample) => sample.response.length"',
  )) as JsonlReward;
  return async (sample) => scored(await reward(sample));
}

/** Imports a module. If it does not parse or throws while it loads, the error says that the module is at fault. */
async function load(path: string, what: string): Promise<{ default?: unknown }> {
  try {
    return (await importFile(path)) as { default?: unknown };
  } catch (error) {
    const [line] = describe(error).split('\n');
    const isLibrary = /Cannot find (package|module) '[^']*(webgrpo'|dist.lib.index\.js')/.test(line);
    const remedy = isLibrary
      ? ' Install it there (its tarball: see README; in a clone, npm run build), or take its functions from the argument of the default export.'
      : '';
    throw new InputError(`${what} does not load: ${line.replace(/\.$/, '')}.${remedy}`, { cause: error });
  }
}

/** True for the name of a TypeScript file. */
export const isTypeScript = (path: string): boolean => /\.[cm]?ts$/.test(path);

/** Imports a module of a user. TypeScript is read by Node, from 22.18 on, or by the user's own bundler. */
export async function importFile(path: string): Promise<unknown> {
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
    `${path} is TypeScript, which Node ${process.versions.node} does not read. Use Node 22.18 or newer, install vite or ` +
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
