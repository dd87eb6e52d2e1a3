/** Config part `data`: the task of a run, and the part of its data that a step uses. */

import * as v from 'valibot';
import { SHIPPED_TOOLS } from '../../../tasks/tool.ts';
import {
  choice,
  count,
  flag,
  number,
  optionalCountOrAll,
  names,
  text,
  optionalTextOrGroups,
  optionalTextOrTexts,
  options,
  part,
  positive,
  ANY,
  SHARE,
} from '../keys.ts';

/** Keys of a task that is loaded from a URL. */
export const taskModule = {
  module: text(
    undefined,
    "Module whose default export is the task, instead of name. A file (.js, .ts; relative to the working folder), a package's name, or https://...",
  ),
  isolated: flag(
    undefined,
    'Run the module in a sandbox, without network, files and environment. Default: true for an address, false for a file or package.',
  ),
  timeoutS: positive(
    undefined,
    's',
    "Time limit of a call of the module's functions. Default: 10 in the sandbox, otherwise 300, for those that return a promise.",
  ),
};

export const task = part({
  name: text('gsm8k', 'Task, with its problems, tools and reward.'),
  ...taskModule,
  path: text(undefined, {
    why: 'JSONL file of training problems. Default: the task generates its own.',
    verl: 'data.train_files',
    trl: 'dataset_name',
  }),
  valPath: optionalTextOrTexts({
    why: 'JSONL file of held-out problems, or several: a list, or files by the names of their metrics. Default: the task generates its own.',
    verl: 'data.val_files',
  }),
  options: options('Settings of the task, which checks them.'),
  tools: names(undefined, SHIPPED_TOOLS, {
    why: 'Tools that the model can call in addition to those of the task. Default: none.',
    verl: 'actor_rollout_ref.rollout.multi_turn.tool_config_path',
    trl: 'tools',
  }),
  mcpServers: optionalTextOrGroups(
    'MCP servers whose tools the model can also call, by name: { command, args, env, cwd } or { url, headers }, or a JSON file with `mcpServers`. Commands run with your rights; see docs/guides/mcp.md.',
  ),
});

const difficulty = part({
  hard: number(0.25, SHARE, 'reward', 'A problem is hard if the mean score of its last group is at most this.'),
  easy: number(0.75, SHARE, 'reward', 'A problem is easy above this mean score, and normal between the two.'),
  hardWeight: number(
    0.2,
    ANY,
    '',
    'Sampling weight of a hard problem, relative to 1 for a problem that was not drawn yet.',
  ),
  normalWeight: number(1, ANY, '', 'Sampling weight of a normal problem.'),
  easyWeight: number(0.2, ANY, '', 'Sampling weight of an easy problem.'),
});

export const data = part({
  trainBatchSize: count(16, 'prompts', {
    why: 'Prompts per step. Samples per step = trainBatchSize x rollout.n.',
    verl: '=',
    trl: 'steps_per_generation',
    note: 'TRL: trainBatchSize / ppoMiniBatchSize',
  }),
  maxPromptLength: count(160, 'tokens', {
    why: 'Longest prompt. A longer one ends the run, unless filterOverlongPrompts or truncation is set.',
    verl: '=',
    trl: 'max_prompt_length',
    note: 'TRL had it earlier',
  }),
  filterOverlongPrompts: flag(false, {
    why: 'Skip problems with prompts longer than maxPromptLength, in training and evaluation. The run reports their number.',
    verl: '=',
  }),
  truncation: choice('error', ['error', 'left', 'right', 'middle'], {
    why: 'Part of a prompt longer than maxPromptLength that is removed, in tokens of the rendered prompt. left = its start, right = its end (including the assistant header), middle = the part between the two halves.',
    verl: '=',
  }),
  chatTemplateKwargs: options({
    why: "Additional variables of the chat template, e.g. Qwen3's enable_thinking.",
    verl: 'data.apply_chat_template_kwargs',
    trl: 'chat_template_kwargs',
  }),
  maxResponseLength: count(160, 'tokens', {
    why: 'Maximum number of tokens after the prompt, including tool output.',
    verl: '=',
    trl: 'max_completion_length',
    note: 'tool output counts, also in verl',
  }),
  trainMaxSamples: optionalCountOrAll('problems', {
    why: 'Number of training problems, from the file (chosen by seed) or the generated stream, used repeatedly. Default and -1: all.',
    verl: '=',
  }),
  sampler: choice(
    'sequential',
    ['sequential', 'difficulty'],
    'Order of training problems. difficulty = sample them by the score of their last group, with the pools below; needs a finite set.',
  ),
  difficulty: v.optional(difficulty, {}),
  valMaxSamples: count(256, 'problems', {
    why: 'Held-out problems per evaluation, from each set. With 256, pass@1 is accurate to about 3 points.',
    verl: 'data.val_max_samples',
  }),
});
