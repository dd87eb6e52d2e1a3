/**
 * Task of a run, and how much of its data a step uses.
 */

import * as v from 'valibot';
import { SHIPPED_TOOLS } from '../../../tasks/shippedTools.ts';
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
    "In place of name: a module whose default export is the task, as a file (.js, .ts; relative to the working folder), a package's name, or https://...",
  ),
  isolated: flag(
    undefined,
    'Run the module in a sandbox, without network, files and environment; absent = true for an address, false for a file or package.',
  ),
  timeoutS: positive(10, 's', 'One call of a module in the sandbox may take so long, before it is ended.'),
};

export const task = part({
  name: text('gsm8k', 'Which task: its problems, tools and reward.'),
  ...taskModule,
  path: text(undefined, {
    why: 'JSONL file of training problems; absent = the task generates its own.',
    verl: 'data.train_files',
    trl: 'dataset_name',
  }),
  valPath: optionalTextOrTexts({
    why: 'JSONL file of held-out problems, or several: a list, or files by the name that their metrics get; absent = the task generates its own.',
    verl: 'data.val_files',
  }),
  options: options("The task's own settings, checked by the task."),
  tools: names(undefined, SHIPPED_TOOLS, {
    why: 'What the model may call beside the tools of the task; absent = nothing.',
    verl: 'actor_rollout_ref.rollout.multi_turn.tool_config_path',
    trl: 'tools',
  }),
  mcpServers: optionalTextOrGroups(
    'MCP servers whose tools the model may call as well, by name: { command, args, env, cwd } or { url, headers }, and more as docs/guides/mcp.md says; or a JSON file with `mcpServers`. Commands run with your rights.',
  ),
});

const difficulty = part({
  hard: number(0.25, SHARE, 'reward', 'A problem is hard while the mean score of its last group is at most this.'),
  easy: number(0.75, SHARE, 'reward', 'It is easy above this, and normal between.'),
  hardWeight: number(0.2, ANY, '', 'How often a hard problem is drawn, beside 1 for one that was not drawn yet.'),
  normalWeight: number(1, ANY, '', 'The same for a normal one.'),
  easyWeight: number(0.2, ANY, '', 'The same for an easy one.'),
});

export const data = part({
  trainBatchSize: count(16, 'prompts', {
    why: 'Prompts a step; samples a step = this x rollout.n.',
    verl: '=',
    trl: 'steps_per_generation',
    note: 'TRL: trainBatchSize / ppoMiniBatchSize',
  }),
  maxPromptLength: count(160, 'tokens', {
    why: 'A longer prompt ends the run, unless one of the next two keys is set.',
    verl: '=',
    trl: 'max_prompt_length',
    note: 'TRL had it earlier',
  }),
  filterOverlongPrompts: flag(false, {
    why: 'Leave out problems with longer prompts, training and held-out; says how many.',
    verl: '=',
  }),
  truncation: choice('error', ['error', 'left', 'right', 'middle'], {
    why: 'What a longer prompt loses, in tokens of the rendered prompt: left = its start, right = its end (the assistant header with it), middle = what is between the two halves.',
    verl: '=',
  }),
  chatTemplateKwargs: options({
    why: "Variables that the chat template gets beside the messages, e.g. Qwen3's enable_thinking.",
    verl: 'data.apply_chat_template_kwargs',
    trl: 'chat_template_kwargs',
  }),
  maxResponseLength: count(160, 'tokens', {
    why: 'Everything after the prompt, tool output included.',
    verl: '=',
    trl: 'max_completion_length',
    note: 'tool output counts, in verl too',
  }),
  trainMaxSamples: optionalCountOrAll('problems', {
    why: 'Train on so many problems of the file (chosen by seed), or of the generated stream, over and over; -1 or absent = all.',
    verl: '=',
  }),
  sampler: choice(
    'sequential',
    ['sequential', 'difficulty'],
    'difficulty = draw problems by the score of their last group, as the pools below say; needs a finite set.',
  ),
  difficulty: v.optional(difficulty, {}),
  valMaxSamples: count(256, 'problems', {
    why: 'Held-out problems an evaluation uses, of each set; 256 gives pass@1 to about 3 points.',
    verl: 'data.val_max_samples',
  }),
});
