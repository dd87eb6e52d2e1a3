/** The task of a run and how much of its data a step takes. */

import { SHIPPED_TOOLS } from '../../../tasks/shippedTools.ts';
import { count, optionalNames, optionalText, options, part, text } from '../keys.ts';

export const task = part({
  name: text('gsm8k', 'Which task: its problems, tools and reward.'),
  path: optionalText('JSONL file of training problems; absent = the task generates its own.'),
  valPath: optionalText('JSONL file of held-out problems; absent = the task generates its own.'),
  options: options("The task's own settings, checked by the task."),
  tools: optionalNames(SHIPPED_TOOLS, 'What the model may call beside the tools of the task; absent = nothing.'),
});

export const data = part({
  trainBatchSize: count(16, 'prompts', 'Prompts a step; samples a step = this x rollout.n.'),
  maxPromptLength: count(160, 'tokens', 'A longer prompt is refused, never cut.'),
  maxResponseLength: count(160, 'tokens', 'Everything after the prompt, tool output included.'),
  valSize: count(256, 'problems', 'Held-out problems an evaluation uses; 256 gives pass@1 to about 3 points.'),
});
