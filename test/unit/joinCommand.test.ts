import { expect, test } from 'vitest';
import { taskFor } from '../../src/cli/commands/join.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';

const task = (settings: Record<string, unknown>) =>
  resolveTrainConfig({ name: 'x', model: { path: 'x' }, task: { name: 'gsm8k', ...settings } }).task;

test.each([
  ['path', { path: '/etc/passwd' }],
  ['valPath', { path: undefined, valPath: 'secret.jsonl' }],
  ['mcpServers', { mcpServers: { evil: { command: 'sh' } } }],
  ['options.module', { name: 'jsonl', options: { reward: 'module', module: '/home/me/file.mjs' } }],
  ['options.searchUrl', { name: 'search-qa', options: { searchUrl: 'http://127.0.0.1:8080' } }],
])(
  'a room that names files, programs or addresses that this machine would open is not joined: task.%s',
  (key, settings) => {
    expect(() => taskFor({ ...task({}), ...settings }, undefined)).toThrow(
      `The room's config has task.${key}, which names files, programs or addresses that this machine would open. The room is not joined.`,
    );
  },
);

test('an empty address is the default, which opens nothing', () => {
  const search = { ...task({}), name: 'search-qa', options: { searchUrl: '' } };
  expect(taskFor(search, undefined)).toEqual(search);
});

test('a task module is loaded only from this machine', () => {
  const module = { ...task({}), module: 'https://example.com/task.js', options: { module: 'its own' } };
  expect(() => taskFor(module, undefined)).toThrow('Give your own copy of it with --module FILE');
  expect(taskFor(module, './mine.js').module).toBe('./mine.js');
  expect(taskFor(task({}), undefined)).toEqual(task({}));
  expect(() => taskFor(task({}), './mine.js')).toThrow(
    "The room's task is gsm8k, which is not a module. Leave --module ./mine.js out.",
  );
});
