/** Starts the MCP servers of a config (`task.mcpServers`, in the format of mcp.json files). The servers run until the command ends. */

import { InputError } from '../../errors.ts';
import { isTree } from '../../grpo/config/tree.ts';
import type { WrittenConfig } from '../../grpo/config/schema/index.ts';
import { type McpCommand, type McpOptions, type McpTools, mcpTools } from '../../extensions/mcp/index.ts';
import type { Task } from '../../tasks/task.ts';
import { readJsonFile } from '../files.ts';
import { currentIo } from '../process/io.ts';
import { say } from './progress.ts';
import { plural } from '../../ui/format.ts';

type Kind = 'text' | 'texts' | 'named texts' | 'number' | 'flag';

/**
 * Allowed keys of a server in task.mcpServers, with the kind of their value. They are the options of `mcpTools`; `tools` is its `include`.
 */
const KEYS: Record<string, Kind> = {
  ...{ command: 'text', args: 'texts', env: 'named texts', cwd: 'text', url: 'text', headers: 'named texts' },
  ...{ tools: 'texts', prefix: 'text', perSample: 'flag', allowHttp: 'flag', truncateSide: 'text' },
  ...{ timeoutMs: 'number', connectTimeoutMs: 'number', maxResponseLength: 'number' },
  ...{ maxSessions: 'number', maxConcurrency: 'number', maxTools: 'number' },
};
const IS: Record<Kind, (value: unknown) => boolean> = {
  text: (value) => typeof value === 'string' && value !== '',
  texts: (value) => Array.isArray(value) && value.every((one) => typeof one === 'string'),
  'named texts': (value) => isTree(value) && Object.values(value).every((one) => typeof one === 'string'),
  number: (value) => typeof value === 'number' && value > 0,
  flag: (value) => typeof value === 'boolean',
};
/** Keys that other programs write into mcp.json files and that are ignored here ("disabled" is handled separately). */
const KNOWN_ELSEWHERE = ['type', 'disabled', 'description'];

type Entry = McpOptions & Partial<McpCommand> & { url?: string; tools?: string[] };

/** Running servers by name and settings. Tasks that are opened one after another share a server. */
const open = new Map<string, Promise<McpTools>>();

/**
 * Returns the task with the tools of the config's MCP servers added. Throws InputError for an invalid entry, an environment variable that
 * is not set, a server that does not start, or two tools with the same name.
 */
export async function withMcpServers(task: Task, config: WrittenConfig['task']['mcpServers']): Promise<Task> {
  if (config === undefined) return task;
  const entries = Object.entries(await readServers(config)).filter(([, entry]) => !isDisabled(entry));
  const read = entries.map(([name, entry]) => [name, readEntry(name, entry)] as const);
  const opened = await Promise.all(read.map(async ([name, entry]) => [name, await openOnce(name, entry)] as const));
  const tools = [...(task.tools ?? [])];
  const from = new Map(tools.map((tool) => [tool.name, `task "${task.name}"`]));
  for (const [server, { tools: more }] of opened)
    for (const tool of more) {
      const other = from.get(tool.name);
      if (other !== undefined)
        throw new InputError(
          `task.mcpServers: "${server}" and ${other} both have a tool "${tool.name}". Give the server a prefix, or choose its tools.`,
        );
      from.set(tool.name, `"${server}"`);
      tools.push(tool);
    }
  return { ...task, tools };
}

/** Ends all MCP servers and prints the numbers of calls and errors. Never throws. */
export async function closeMcpServers(): Promise<void> {
  const all = [...open.values()];
  open.clear();
  for (const result of await Promise.allSettled(all)) {
    if (result.status === 'rejected') continue;
    const { stats, close } = result.value;
    const { calls, errors, lost, reconnects } = stats;
    if (calls > 0)
      say(
        `MCP: ${plural(calls, 'call')}, ${errors} with an error, ${plural(lost, 'connection')} lost, ${reconnects} reopened`,
      );
    await close().catch(() => {});
  }
}

const isDisabled = (entry: unknown): boolean => isTree(entry) && entry['disabled'] === true;

async function readServers(config: string | object): Promise<Record<string, unknown>> {
  const file = typeof config === 'string' ? await readJsonFile(config) : { mcpServers: config };
  const servers = isTree(file) ? file['mcpServers'] : undefined;
  if (isTree(servers)) return servers;
  throw new InputError(
    `${typeof config === 'string' ? config : 'task.mcpServers'} has no \`mcpServers\`. Write {"mcpServers": {"name": {"command": "..."}}}.`,
  );
}

function readEntry(name: string, entry: unknown): Entry {
  const at = `task.mcpServers.${name}`;
  if (!isTree(entry) || (entry['command'] === undefined) === (entry['url'] === undefined))
    throw new InputError(
      `${at} needs either a command or a url. Write { command, args, env, cwd } or { url, headers }.`,
    );
  const known = Object.entries(entry).flatMap(([key, value]) => {
    if (KNOWN_ELSEWHERE.includes(key)) return [];
    const kind = Object.hasOwn(KEYS, key) ? KEYS[key] : undefined;
    if (kind === undefined) say(`${at}.${key} is not used here; known: ${Object.keys(KEYS).join(', ')}`);
    else if (!IS[kind](value)) throw new InputError(`${at}.${key} has a wrong value; allowed: ${kind}.`);
    else return [[key, value]];
    return [];
  });
  return filled(Object.fromEntries(known), at) as Entry;
}

/**
 * Replaces `${NAME}` and `${NAME:-default}` by the value of the environment variable. Only the servers get the values; the saved config
 * keeps the names, because values can be secret.
 */
function filled(value: unknown, at: string): unknown {
  if (Array.isArray(value)) return value.map((one, i) => filled(one, `${at}.${i}`));
  if (isTree(value))
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, filled(one, `${at}.${key}`)]));
  if (typeof value !== 'string') return value;
  return value.replace(/\$\{(?:env:)?(\w+)(?::-([^}]*))?\}/g, (_, name: string, otherwise?: string) => {
    const found = currentIo().env[name] ?? otherwise;
    if (found !== undefined) return found;
    throw new InputError(
      `${at} names the environment variable ${name}, which is not set. Set it, or write \${${name}:-DEFAULT}.`,
    );
  });
}

function openOnce(name: string, entry: Entry): Promise<McpTools> {
  const key = JSON.stringify([name, entry]);
  let opening = open.get(key);
  if (!opening) open.set(key, (opening = openServer(name, entry)));
  return opening;
}

async function openServer(name: string, entry: Entry): Promise<McpTools> {
  const { command, args, env, cwd, url, tools: include, ...options } = entry;
  const process = { ...(args && { args }), ...(env && { env }), ...(cwd !== undefined && { cwd }) };
  const server = command === undefined ? url! : { command, ...process };
  const opened = await mcpTools(server, { ...options, name, ...(include && { include }) });
  say(`MCP server ${name}: ${plural(opened.tools.length, 'tool')}`);
  for (const note of opened.notes.slice(0, MAX_NOTES)) say(`  ${note}`);
  if (opened.notes.length > MAX_NOTES) say(`  and ${plural(opened.notes.length - MAX_NOTES, 'more note')}`);
  return opened;
}

const MAX_NOTES = 20;
