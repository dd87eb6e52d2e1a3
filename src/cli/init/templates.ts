/** Templates of `webgrpo init`: the files of these folders, with the task's name instead of "my-task". */

import environmentConfig from './environment/config.yaml?raw';
import environmentReadme from './environment/README.md?raw';
import environmentTask from './environment/task.mjs?raw';
import environmentTest from './environment/task.test.mjs?raw';
import jsonlConfig from './jsonl/config.yaml?raw';
import jsonlReadme from './jsonl/README.md?raw';
import jsonlTest from './jsonl/task.test.mjs?raw';
import toolConfig from './tool/config.yaml?raw';
import toolReadme from './tool/README.md?raw';
import toolTask from './tool/task.mjs?raw';
import toolTest from './tool/task.test.mjs?raw';

interface Template {
  summary: string;
  files: Readonly<Record<string, string>>;
}

export const TEMPLATES: Readonly<Record<string, Template>> = {
  tool: {
    summary: 'problems, a tool and a reward in a module (the default)',
    files: { 'config.yaml': toolConfig, 'README.md': toolReadme, 'task.mjs': toolTask, 'task.test.mjs': toolTest },
  },
  jsonl: {
    summary: 'no code: a file of prompts and answers',
    files: {
      'config.yaml': jsonlConfig,
      'README.md': jsonlReadme,
      'task.test.mjs': jsonlTest,
      'train.jsonl': sums(),
    },
  },
  environment: {
    summary: 'a state that tools and turns share, with rewards by turn',
    files: {
      'config.yaml': environmentConfig,
      'README.md': environmentReadme,
      'task.mjs': environmentTask,
      'task.test.mjs': environmentTest,
    },
  },
};

/** Returns 400 different word problems. */
function sums(): string {
  const line = (i: number) => {
    const [a, b] = [3 + ((i * 7) % 40), 3 + ((i * 11 + Math.floor(i / 40)) % 40)];
    return { prompt: `Tom has ${a} books and buys ${b} more. How many books in all?`, answer: `${a + b}` };
  };
  return Array.from({ length: 400 }, (_, i) => `${JSON.stringify(line(i))}\n`).join('');
}

/**
 * Returns the files of a new task, by name.
 * @param command command that starts webgrpo in the new folder
 */
export function filesOf({ files }: Template, name: string, command: string): Map<string, string> {
  const filled = (text: string) => text.replaceAll('my-task', name).replaceAll('npx webgrpo', () => command);
  return new Map(Object.entries(files).map(([file, text]) => [file, filled(text)]));
}
