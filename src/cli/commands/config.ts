/** `webgrpo config`: prints every key of the YAML configs, read from the schemas. docs/reference/config.md is its output. */

import { InputError } from '../../errors.ts';
import type { Command } from '../command.ts';
import { currentIo } from '../process/io.ts';
import { configMarkdown, configText, peersMarkdown } from '../configDocs.ts';

export const config: Command = {
  summary: 'every config key with its default, its allowed values and its reason',
  usage: ['config', 'config actor', 'config sft', 'config --markdown > docs/reference/config.md'],
  reads: ['words'],
  flags: {
    markdown: { help: 'as docs/reference/config.md has it' },
    peers: { help: "verl's and TRL's names beside ours, as docs/reference/from-trl-verl.md has them" },
    json: { help: 'the keys as one JSON array' },
  },
  run({ positionals, flags }, io) {
    const [part, ...more] = positionals;
    if (more.length > 0)
      throw new InputError(`One part of the config is expected, but there are ${positionals.length}.`);
    const printed = ['markdown', 'peers', 'json'].filter((name) => flags[name]);
    if (printed.length > 1 || (part !== undefined && printed.length > 0 && !flags['json']))
      throw new InputError(`--${printed[0]} prints all keys in one form. Leave out ${part ?? `--${printed[1]}`}.`);
    if (flags['markdown']) currentIo().stdout.write(configMarkdown());
    else if (flags['peers']) currentIo().stdout.write(peersMarkdown());
    else {
      const { text, keys } = configText(part);
      io.text(text);
      io.result(keys);
    }
    return Promise.resolve();
  },
};
