/**
 * Opens the task of a run in the page: a shipped task, a module in the page's own folder, or a module from elsewhere that the visitor
 * allowed.
 */

import { describe, InputError } from '../../src/errors.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { checkTask, fetchSource, moduleUrl, sha256Of } from '../../src/extensions/modules/index.ts';
import { openShippedTask, withTools } from '../../src/extensions/tasks/index.ts';
import type { Task } from '../../src/tasks/task.ts';
import { fetchText } from './files.ts';

/** Addresses that the visitor allowed since the page was opened. */
const letIn = new Set<string>();

/** Asks the visitor whether a module of `host` may be loaded; true = load it. */
export type Ask = (question: { host: string; text: string }) => Promise<boolean>;

/**
 * Asks before the first fetch of a module that is not the page's own, because a link can name any address. Throws InputError if the visitor
 * refuses, or if the address is invalid.
 */
export async function letModuleIn(module: string, ask: Ask): Promise<void> {
  const url = addressOf(module);
  if (isOwn(url) || letIn.has(url.href)) return;
  const text =
    `The task of this run is a module from ${moduleUrl(url.href).host}: ${url.href}. Nothing has been downloaded yet. It would write the ` +
    'problems and score the answers, in a sandbox without network, storage or access to this page. Load it?';
  if (!(await ask({ host: url.host, text })))
    throw new InputError(
      `The task module ${url.href} was not allowed to load. Start again and allow it, or choose another task.`,
    );
  letIn.add(url.href);
}

/** Opens the task. Throws InputError, also for a module from elsewhere that was not allowed. */
export async function openTask({ task: config, reward }: TrainConfig): Promise<Task> {
  const { module, isolated, options, tools, timeoutS } = config;
  if (config.mcpServers)
    throw new InputError(
      'task.mcpServers works only on the command line. In a page, use mcpTools, see docs/guides/mcp.md.',
    );
  if (module === undefined) return openShippedTask(config, { readText, loadReward });
  const url = addressOf(module);
  const limits = { timeoutMs: timeoutS && timeoutS * 1000, rewardTimeoutMs: reward.timeoutS * 1000 };
  if (isOwn(url) && !isolated) return withTools(await ownTask(url.href, options, limits.timeoutMs), tools);
  if (!isOwn(url) && !letIn.has(url.href))
    throw new InputError(`The task module ${url.href} was not allowed to load. Start the run again and allow it.`);
  const { isolatedTask } = await import('../../src/extensions/modules/isolated.ts');
  const source = {
    entry: url.href,
    root: isOwn(url) ? folder() : `${url.origin}/`,
    read: (at: string) => fetchSource(at),
  };
  return withTools(await isolatedTask(source, options, limits), tools);
}

function loadReward(setting: string, file: string): never {
  throw new InputError(`${setting} is "${file}", but the page cannot load a reward from a file. Use a reward by name.`);
}

/** Returns the text of a file in the page's own folder. Throws InputError for any other address. */
async function readText(path: string): Promise<string> {
  const url = new URL(path, document.baseURI);
  if (isOwn(url)) return fetchText(path);
  throw new InputError(`The file ${path} is outside the page's folder. Copy it there.`);
}

/** Returns the folder of the page. */
const folder = (): string => new URL('.', document.baseURI).href;

const isOwn = (url: URL): boolean => url.href.startsWith(folder());

/** Returns the address of a task as a URL. Throws InputError for an address that cannot be loaded. */
function addressOf(module: string): URL {
  if (!URL.canParse(module) && !/^\.{0,2}\//.test(module))
    throw new InputError(
      `task.module is "${module}", but a page takes https://..., or ./NAME.js for a file in its folder. Use packages on the command line.`,
    );
  const url = new URL(module, document.baseURI);
  return isOwn(url) ? url : moduleUrl(url.href);
}

/** Loads a module of the page's own folder, outside a sandbox. The page's Content Security Policy allows only these. */
async function ownTask(
  address: string,
  options: TrainConfig['task']['options'],
  timeoutMs: number | undefined,
): Promise<Task> {
  const text = await fetchSource(address);
  try {
    const exported = (await import(/* @vite-ignore */ address)) as { default?: unknown; task?: unknown };
    const given = exported.default ?? exported.task;
    const made = typeof given === 'function' ? await (given as (options: unknown) => unknown)(options) : given;
    return { ...checkTask(address, made, timeoutMs), sha256: await sha256Of(new Map([[address, text]])) };
  } catch (error) {
    if (error instanceof InputError) throw error;
    throw new InputError(`The task module ${address} cannot be loaded: ${describe(error)}.`, { cause: error });
  }
}
