/** `webgrpo init`: writes a folder with a new task, its config and its test, ready to train. */

import { existsSync } from 'node:fs';
import { basename, dirname, relative } from 'node:path';
import { InputError } from '../../errors.ts';
import { nearestKey } from '../../grpo/config/resolve.ts';
import { checkName } from '../../grpo/config/rules.ts';
import { isRemote } from '../../model/checkpoint/address.ts';
import type { FileSystem } from '../../runs/fileSystem.ts';
import { oneFile } from '../args.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { disk, shippedPath } from '../files.ts';
import { filesOf, type StartModel, TEMPLATES, WARM_START } from '../init/templates.ts';
import { quoted, startedIn } from '../process/startedAs.ts';
import { openModel } from '../run/checkpoints.ts';
import { isLarge } from '../run/plan.ts';

const DEFAULT = 'tool';

export const init: Command = {
  summary: 'write the files of a new task',
  usage: [
    'init my-task',
    'init my-task --model sft.yaml',
    'init my-task --model HuggingFaceTB/SmolLM2-135M-Instruct',
    'init my-task --template jsonl',
    'init my-env --template environment',
  ],
  reads: ['words'],
  flags: {
    ...JSON_FLAG,
    template: { value: 'NAME', help: Object.keys(TEMPLATES).join(', ') },
    model: {
      value: 'PATH',
      help: 'what training starts from: sft.yaml (a small model that first imitates the task), a name on the Hub, a folder or a .gguf file',
    },
  },
  details: () =>
    Object.entries(TEMPLATES)
      .map(([name, { summary }]) => `  ${name.padEnd(13)}${summary}`)
      .join('\n'),
  async run({ positionals, flags: { template = DEFAULT, model } }, io) {
    const folder = oneFile(positionals, 'name or path');
    checkName(basename(folder), 'init');
    const start = typeof model === 'string' ? await startModel(model, folder, String(template)) : undefined;
    const files = await writeTask(disk, folder, String(template), startedIn(folder), start);
    io.text(`${folder} has ${files.join(', ')}.`);
    io.text(`  the model:    ${startsFrom(start, files)}`);
    io.text(`  to train it:  cd ${quoted(folder)} && ${startedIn(folder)} train config.yaml`);
    io.text(`  to test it:   cd ${quoted(folder)} && node --test`);
    io.result({ folder, files });
  },
};

/** Resolves `--model` to the path that the new folder's config names. Throws InputError for a file that is not a model. */
async function startModel(path: string, folder: string, template: string): Promise<StartModel> {
  if (path === WARM_START) {
    if (Object.hasOwn(TEMPLATES, template) && !Object.hasOwn(TEMPLATES[template].files, WARM_START))
      throw new InputError(`The template ${template} has no ${WARM_START}. Give --model a model, or leave it out.`);
    return { path, isLarge: false };
  }
  if (isRemote(path) && !existsSync(shippedPath(path)) && !existsSync(dirname(path))) return { path, isLarge: true };
  const { model } = await openModel(path);
  return { path: existsSync(path) ? relative(folder, path) : path, isLarge: isLarge(model.config) };
}

/** Returns the text that says from which model the new task's training starts, and which other model it can start from. */
function startsFrom(model: StartModel | undefined, files: readonly string[]): string {
  if (model?.path === WARM_START)
    return `a new small one, which first imitates demonstrate() of task.mjs (${WARM_START})`;
  if (model?.isLarge)
    return `${model.path} with adapters; the system message in ${files.includes('task.mjs') ? 'task.mjs' : 'config.yaml'} explains the tool`;
  const shipped = model?.path ?? 'the shipped one (0.41 M parameters), which knows one tool, "calculator"';
  if (!files.includes(WARM_START)) return shipped;
  return `${shipped}.\n                With tools of your own: write demonstrate() in task.mjs and model.path: ${WARM_START} in config.yaml`;
}

/**
 * Writes all files of `folder`, or none, and returns their names. The task has the folder's name. Throws InputError for an invalid name, or
 * if a file or folder of that name exists.
 */
export async function writeTask(
  files: FileSystem,
  folder: string,
  template: string,
  command: string,
  model?: StartModel,
): Promise<string[]> {
  const name = basename(folder);
  checkName(name, 'init');
  if (!Object.hasOwn(TEMPLATES, template)) {
    const known = Object.keys(TEMPLATES);
    const meant = nearestKey(template, known);
    throw new InputError(`--template is "${template}". Did you mean "${meant}"? There are ${known.join(', ')}.`);
  }
  await expectFree(files, folder);
  const content = filesOf(TEMPLATES[template], name, command, model);
  await files.writeFolder(folder, content);
  return [...content.keys()];
}

/** Throws InputError if the path exists, unless it is an empty folder. */
async function expectFree(files: FileSystem, name: string): Promise<void> {
  if (!(await files.exists(name))) return;
  const held = await files.list(name).catch((error: unknown) => {
    throw new InputError(`${name} exists already and is not a folder. Choose another name.`, { cause: error });
  });
  if (held.length > 0)
    throw new InputError(
      `The folder ${name} exists already and contains ${held.slice(0, 4).join(', ')}. Nothing was written. Choose another name.`,
    );
}
