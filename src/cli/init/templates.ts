/** Templates of `webgrpo init`: the files of the folders next to this file. "my-task" in them is replaced by the task's name. */

import environmentConfig from './environment/config.yaml?raw';
import environmentReadme from './environment/README.md?raw';
import environmentTask from './environment/task.mjs?raw';
import environmentTest from './environment/task.test.mjs?raw';
import jsonlConfig from './jsonl/config.yaml?raw';
import jsonlReadme from './jsonl/README.md?raw';
import jsonlTest from './jsonl/task.test.mjs?raw';
import largeSettings from './large.yaml?raw';
import sft from './sft.yaml?raw';
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
    files: {
      'config.yaml': toolConfig,
      'README.md': toolReadme,
      'sft.yaml': sft,
      'task.mjs': toolTask,
      'task.test.mjs': toolTest,
    },
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
      'sft.yaml': sft,
      'task.mjs': environmentTask,
      'task.test.mjs': environmentTest,
    },
  },
};

/** Returns the lines of a JSONL file with 400 different word problems. */
function sums(): string {
  const line = (i: number) => {
    const [a, b] = [3 + ((i * 7) % 40), 3 + ((i * 11 + Math.floor(i / 40)) % 40)];
    return { prompt: `Tom has ${a} books and buys ${b} more. How many books in all?`, answer: `${a + b}` };
  };
  return Array.from({ length: 400 }, (_, i) => `${JSON.stringify(line(i))}\n`).join('');
}

/** The file of a template whose model first imitates the task. */
export const WARM_START = 'sft.yaml';

/** The model from which a new task's training starts, as its config names the model. */
export interface StartModel {
  path: string;
  /**
   * True for a large model. Its config trains adapters with the learning rate and token limits of a large model, and its system message
   * explains how to call the tool.
   */
  isLarge: boolean;
}

/** System message that explains how to call the templates' tool, for a model that was not trained to call it. */
const SYSTEM =
  'You may use a calculator. To use it, write <tool_call>{"name": "calculator", "arguments": {"expression": "12+30"}}</tool_call> and ' +
  'nothing after it. Its result comes back as the next message. End with "#### " and the number.';

/**
 * Returns the files of a new task, by file name.
 * @param command command that starts webgrpo in the new folder
 * @param model default: the model that the template names
 */
export function filesOf({ files }: Template, name: string, command: string, model?: StartModel): Map<string, string> {
  const filled = (text: string) => text.replaceAll('my-task', name).replaceAll('npx webgrpo', () => command);
  const written = Object.entries(files).map(([file, text]): [string, string] => {
    const started = model && file === 'config.yaml' ? withModel(text, model) : startOf(text, file, model);
    const told = model?.isLarge
      ? started.replace("const SYSTEM = '';", () => `const SYSTEM =\n  '${SYSTEM}';`)
      : started;
    return [file, filled(told)];
  });
  return new Map(written);
}

/** Returns a README that says how training starts from the given model; any other file unchanged. */
function startOf(text: string, file: string, model: StartModel | undefined): string {
  if (!model || file !== 'README.md') return text;
  const isWarm = model.path === WARM_START;
  const starts = isWarm
    ? 'a new small model imitates demonstrate() of task.mjs, then GRPO improves it'
    : `starts from ${model.path}`;
  const named = text.replace(/^( +# train: ).*(?=; then open)/m, (_, start) => `${start}${starts}`);
  return isWarm
    ? named.replace(/^With tools of your own.*?trained\. |^With tools of your own.*?`task\.mjs`\. /m, '')
    : named;
}

const ADAPTERS = ['loraRank: 32', 'loraAlpha: 32', 'targetModules: [all-linear]', 'enableGradientCheckpointing: true'];

function withModel(config: string, { path, isLarge }: StartModel): string {
  const lines = [`path: ${JSON.stringify(path)}`, ...(isLarge ? ADAPTERS : [])];
  const timed = path === WARM_START ? config.replace(/\d+ # with sft\.yaml: /, '') : config;
  const named = timed.replace(/^model:\n(?: .*\n)+/m, () => `model:\n${lines.map((line) => `  ${line}\n`).join('')}`);
  if (!isLarge) return named;
  const told = named.replace(
    /^( +)options:\n/m,
    (line, indent) => `${line}${indent}  systemPrompt: ${JSON.stringify(SYSTEM)}\n`,
  );
  return told.replace(/^data:\n[^]*/m, () => largeSettings);
}
