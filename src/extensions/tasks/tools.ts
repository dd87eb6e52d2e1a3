/** Tools that a config can add to any task by name. `search` and `open` are not among them, because they need a task with documents. */

import type { Task } from '../../tasks/task.ts';
import type { SHIPPED_TOOLS, Tool } from '../../tasks/tool.ts';
import { calculator } from '../../tasks/tools/calculator.ts';
import { javascriptTool } from '../sandbox/index.ts';

const TOOLS: Record<(typeof SHIPPED_TOOLS)[number], () => Tool> = {
  calculator: () => calculator,
  javascript: () => javascriptTool(),
};

/** Returns the task with these tools added. If the task has a tool of the same name, the task's tool is used. */
export function withTools<T extends Task>(task: T, names: readonly (typeof SHIPPED_TOOLS)[number][] = []): T {
  const taskTools = task.tools ?? [];
  const added = names.filter((name) => !taskTools.some((tool) => tool.name === name));
  return added.length === 0 ? task : { ...task, tools: [...taskTools, ...added.map((name) => TOOLS[name]())] };
}
