/** `webgrpo init`: writes a folder with a new task, its config and its test, ready to train. */

import { InputError } from '../../errors.ts';
import { nearestKey } from '../../grpo/config/resolve.ts';
import { checkName } from '../../grpo/config/rules.ts';
import type { FileSystem } from '../../runs/fileSystem.ts';
import { oneFile } from '../args.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { disk } from '../files.ts';
import { filesOf, TEMPLATES } from '../init/templates.ts';
import { startedIn } from '../process/startedAs.ts';

const DEFAULT = 'tool';

export const init: Command = {
  summary: 'write the files of a new task',
  usage: ['init my-task', 'init my-task --template jsonl', 'init my-env --template environment'],
  flags: { ...JSON_FLAG, template: { value: 'NAME', help: Object.keys(TEMPLATES).join(', ') } },
  details: () =>
    Object.entries(TEMPLATES)
      .map(([name, { summary }]) => `  ${name.padEnd(13)}${summary}`)
      .join('\n'),
  async run({ positionals, flags: { template = DEFAULT } }, io) {
    const name = oneFile(positionals, 'name');
    const files = await writeTask(disk, name, String(template), startedIn(name));
    io.text(`${name} has ${files.join(', ')}.`);
    io.text(`  to train it:  cd ${name} && ${startedIn(name)} train config.yaml`);
    io.text(`  to test it:   cd ${name} && node --test`);
    io.result({ folder: name, files });
  },
};

/**
 * Writes the folder `name`, complete or not at all, and returns its files. Throws InputError for an invalid name, or if something of that
 * name exists.
 */
export async function writeTask(files: FileSystem, name: string, template: string, command: string): Promise<string[]> {
  checkName(name, 'init');
  if (!Object.hasOwn(TEMPLATES, template)) {
    const known = Object.keys(TEMPLATES);
    const meant = nearestKey(template, known);
    throw new InputError(`--template is "${template}". Did you mean "${meant}"? There are ${known.join(', ')}.`);
  }
  await expectFree(files, name);
  const content = filesOf(TEMPLATES[template], name, command);
  await files.writeFolder(name, content);
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
