/** Removes the losses and recipes that a test file registered, because the files of a process share the tables of built-in ones. */

import { afterAll } from 'vitest';
import { RECIPES } from '../src/grpo/config/recipes.ts';
import { POLICY_LOSSES } from '../src/grpo/losses/index.ts';

const tables = [POLICY_LOSSES, RECIPES].map((table) => ({ table, builtIn: new Set(Object.keys(table)) }));

afterAll(() => {
  for (const { table, builtIn } of tables)
    for (const name of Object.keys(table)) if (!builtIn.has(name)) Reflect.deleteProperty(table, name);
});
