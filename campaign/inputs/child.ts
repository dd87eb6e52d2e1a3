/** The process in which inputs are tested. Each input must work, or throw one of webgrpo's error messages. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import '../../src/engineParts.ts';
import '../../src/trainerParts.ts';
import { readArgs } from '../../src/cli/args.ts';
import type { Command } from '../../src/cli/command.ts';
import { compare } from '../../src/cli/commands/compare.ts';
import { config } from '../../src/cli/commands/config.ts';
import { evaluate } from '../../src/cli/commands/eval.ts';
import { exportRun } from '../../src/cli/commands/export.ts';
import { generate } from '../../src/cli/commands/generate.ts';
import { merge } from '../../src/cli/commands/merge.ts';
import { profile } from '../../src/cli/commands/profile.ts';
import { report } from '../../src/cli/commands/report.ts';
import { readSequences, score } from '../../src/cli/commands/score.ts';
import { sft } from '../../src/cli/commands/sft.ts';
import { train } from '../../src/cli/commands/train.ts';
import { disk, readJsonFile } from '../../src/cli/files.ts';
import { openTask } from '../../src/cli/run/openTask.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';
import { openTrackers } from '../../src/cli/run/trackers.ts';
import { InputError, NoAdapterError } from '../../src/errors.ts';
import { batchTable } from '../../src/grpo/config/rules.ts';
import { parseSftConfig } from '../../src/extensions/sft/index.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/index.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import { TOOL_PARSERS } from '../../src/rollout/tools/parser.ts';
import { gsm8kJsonlTask, parseGsm8kJsonl } from '../../src/tasks.ts';
import { calculate, calculator } from '../../src/tasks/tools/calculator.ts';
import type { Input, Verdict } from './input.ts';

const COMMANDS: Record<string, Command> = {
  ...{ train, compare, sft, eval: evaluate, generate, merge, score, export: exportRun, config, report, profile },
};

const IO = { json: true, result: () => {}, text: () => {} };

async function attempt(input: Input): Promise<void> {
  switch (input.kind) {
    case 'train': {
      const read = parseTrainConfig(input.yaml, { source: 'a.yaml', overrides: input.overrides, note: () => {} });
      batchTable(read);
      const task = await openTask(read.task);
      await task.train(0, read.seed);
      return void (await task.heldOut(2));
    }
    case 'sft':
      return void parseSftConfig(input.yaml, { source: 'a.yaml', overrides: input.overrides, note: () => {} });
    case 'command': {
      const [name, ...rest] = input.args;
      const command = COMMANDS[name];
      return void (await command.run(readArgs(rest, { ...command.flags, help: { help: '' } }), IO));
    }
    case 'folder':
      return inFolder((path) => readRun(path, input.files));
    case 'jsonl': {
      const problems = parseGsm8kJsonl(input.text, 'a.jsonl');
      const task = gsm8kJsonlTask(problems, problems);
      return void [task.train(0, 1), task.train(problems.length, 2), task.heldOut(4)];
    }
    case 'tokens':
      return inFolder(async (path) => {
        const file = join(path, 'tokens.json');
        writeFileSync(file, input.text);
        readSequences(await readJsonFile(file), { vocabSize: 97, maxPositionEmbeddings: 64 } as ModelConfig, file);
      });
    case 'calls': {
      const calls = TOOL_PARSERS[input.format as keyof typeof TOOL_PARSERS](input.text, [calculator]);
      for (const call of calls) {
        if (call.error !== undefined ? typeof call.error !== 'string' : typeof call.args !== 'object')
          throw new Error(`a call is ${JSON.stringify(call)}`);
        JSON.stringify(call);
      }
      return;
    }
    case 'expression': {
      const value = calculate(input.text);
      if (!value.startsWith('Error: ') && !Number.isFinite(Number(value))) throw new Error(`the result is ${value}`);
    }
  }
}

async function inFolder(use: (path: string) => Promise<void>): Promise<void> {
  const path = mkdtempSync('folder-');
  try {
    await use(path);
  } finally {
    rmSync(path, { recursive: true });
  }
}

/** Writes the files into a run folder, and reads them as a resumed run, `webgrpo profile` and `webgrpo report` do. */
async function readRun(path: string, files: Record<string, string>): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(path, name)), { recursive: true });
    writeFileSync(join(path, name), text);
  }
  const folder = RunFolder.open(disk, path);
  await openTrackers(['csv', 'tensorboard'], folder, await folder.metrics());
  const args = { positionals: [path], overrides: [], flags: {} };
  await profile.run(args, IO);
  await report.run(args, IO);
}

const PROTOTYPES = [Object.prototype, Array.prototype, Function.prototype, String.prototype] as object[];
const before = PROTOTYPES.map((prototype) => Reflect.ownKeys(prototype).length);

async function judge(input: Input): Promise<Verdict> {
  const start = process.resourceUsage().maxRSS;
  const verdict = await attempt(input).then(
    (): Verdict => ({ held: 'works' }),
    (error: unknown): Verdict => {
      if (error instanceof NoAdapterError) return { held: 'works' };
      if (!(error instanceof InputError))
        return { wrong: error instanceof Error ? String(error.stack) : String(error) };
      if (error.message.length > 600 || /[\p{Cc}\u2028\u2029]/u.test(error.message))
        return { wrong: `says ${error.message}` };
      return { held: 'refused' };
    },
  );
  if (PROTOTYPES.some((prototype, i) => Reflect.ownKeys(prototype).length !== before[i]))
    return { wrong: 'changes a prototype' };
  const grown = (process.resourceUsage().maxRSS - start) / 2 ** 20;
  return grown > 1 ? { wrong: `takes ${grown.toFixed(1)} GiB` } : verdict;
}

process.on('message', (input: Input) => void judge(input).then((verdict) => process.send?.(verdict)));
