/** How samples are drawn: sampling, turns and tools, evaluation. */

import * as v from 'valibot';
import { TOOL_PARSERS } from '../../../rollout/tools/parser.ts';
import {
  choice,
  count,
  countOrOff,
  flag,
  number,
  optionalTexts,
  part,
  positive,
  text,
  ANY,
  SHARE,
  TEMPERATURE,
} from '../keys.ts';

const multiTurn = part({
  enable: flag(true, { why: 'Lets the model call tools; false = one answer, tool calls are plain text.', verl: '=' }),
  maxAssistantTurns: count(6, 'turns', {
    why: 'Assistant messages a sample may write.',
    verl: '=',
    trl: 'max_tool_calling_iterations',
    note: "TRL's is one less: turns after a tool",
  }),
  maxToolCalls: count(5, 'calls', {
    why: 'Tool calls a sample may make, over all turns.',
    verl: 'actor_rollout_ref.rollout.multi_turn.max_parallel_calls',
    note: "verl's bounds a turn, ours the sample",
  }),
  maxToolResponseLength: count(256, 'characters', { why: 'Longer tool output is cut at its end.', verl: '=' }),
  toolResponseTruncateSide: choice('right', ['left', 'right', 'middle'], {
    why: 'Which part of too long tool output goes.',
    verl: '=',
  }),
  toolTimeoutS: positive(10, 's', 'A tool that takes longer answers with an error text.'),
  sampleTimeoutS: number(undefined, ANY, 's', 'A sample that takes longer ends as it is; absent = no limit.'),
  onParseError: choice('tell', ['tell', 'stop'], 'tell = the model reads what is wrong with its call; stop = it ends.'),
  onToolFailure: choice('tell', ['tell', 'stop'], 'The same for a tool that throws or takes too long.'),
  format: choice('hermes', Object.keys(TOOL_PARSERS) as (keyof typeof TOOL_PARSERS)[], {
    why: 'How a tool call is written; hermes = <tool_call>{json}</tool_call>.',
    verl: '=',
  }),
  constrainToolCalls: flag(
    false,
    'A call that was begun can only go on validly, by the schemas. A step a read-back, or a guess.',
  ),
  toolSchemasInPrompt: flag(
    false,
    "The template writes the tools' schemas into the prompt; models made for that want it.",
  ),
});

const agent = part({
  defaultAgentLoop: text('tool_agent', {
    why: 'single_turn, tool_agent, or one registered by registerAgentLoop().',
    verl: '=',
  }),
  timeoutS: positive(300, 's', 'A loop of your own that neither generates nor calls tools for so long has failed.'),
});

const valKwargs = part({
  n: count(1, 'samples', {
    why: 'Samples per held-out problem; more narrows the error of pass@1 and gives pass@k.',
    verl: '=',
    trl: 'num_generations_eval',
  }),
  temperature: number(1, [0, 1e6], '', { why: '1 = what training samples from; 0 = greedy.', verl: '=' }),
  topK: countOrOff(0, 'tokens', { why: '0 = off.', verl: '=' }),
  topP: number(1, [1e-6, 1], 'probability', { why: '1 = off.', verl: '=' }),
  minP: number(0, SHARE, 'share of the largest probability', '0 = off.'),
});

const speculative = part({
  enable: flag(
    false,
    'Guess tokens and check several in one pass; no token or log-prob changes. For few, repetitive sequences.',
  ),
  maxDraftTokens: count(8, 'tokens', 'Guessed at once for a sequence, at most; adapts to how many come true.'),
  minNgram: count(3, 'tokens', 'So many last tokens must have occurred before, in the prompt or a sample of it.'),
  history: count(8, 'samples', { why: 'Finished samples remembered for each prompt, over steps.', min: 0 }),
  adapt: flag(true, 'Guess only while a token takes less time with guesses than without; no token depends on it.'),
  verifyRows: count(
    undefined,
    'rows',
    'Rows of logits a pass may check; absent = maxNumSeqs, which takes no memory more.',
  ),
});

const checkpointEngine = part({
  updateWeightsBucketMegabytes: number(16, [0.0625, 32], 'MiB', {
    why: 'Weights travel in buckets of this size: one is read while the one before is written.',
    verl: '=',
    note: 'MiB of 2 ** 20 bytes; at most 32 here',
  }),
  content: choice(
    'whole',
    ['whole', 'delta'],
    'delta = without buckets whose bytes are as they were sent last, which the sender keeps in host memory to compare.',
  ),
  kvCache: choice(
    'recompute',
    ['recompute', 'keep'],
    'Contexts of samples under way, when new weights come: computed again by them, or kept as the old ones computed them.',
  ),
});

export const rollout = part({
  n: count(8, 'samples', {
    why: 'Samples per prompt: the group that advantages are computed over.',
    verl: '=',
    trl: 'num_generations',
  }),
  temperature: number(1, TEMPERATURE, '', {
    why: 'Training divides logits by it as well, so that both see one distribution.',
    verl: '=',
    trl: 'temperature',
    live: true,
  }),
  topK: countOrOff(0, 'tokens', {
    why: 'Keep the k likeliest; 0 = off. Training renormalises by the kept mass.',
    verl: '=',
    trl: 'top_k',
    note: 'off is 0 here and in TRL, -1 in verl (read here as well)',
  }),
  topP: number(1, [1e-6, 1], 'probability', {
    why: 'Keep the smallest set of this mass; 1 = off.',
    verl: '=',
    trl: 'top_p',
    live: true,
  }),
  minP: number(0, SHARE, 'share of the largest probability', {
    why: 'Keep tokens above this share; 0 = off.',
    trl: 'min_p',
  }),
  repetitionPenalty: positive(1, '', {
    why: 'Above 1 makes tokens of the context and the turn less likely; 1 = off.',
    trl: 'repetition_penalty',
  }),
  presencePenalty: number(0, [-Infinity, Infinity], 'logit', 'Taken off tokens that the turn has drawn; 0 = off.'),
  frequencyPenalty: number(0, [-Infinity, Infinity], 'logit', 'Taken off for each time it was drawn; 0 = off.'),
  minNewTokens: count(0, 'tokens', { why: 'A turn cannot end before so many; 0 = off.', min: 0 }),
  stop: optionalTexts('Texts that end a turn, wherever in a token; absent = only its end token does.'),
  includeStopStrInOutput: flag(false, "Whether tools and rewards see such a text in the turn; vLLM's name."),
  overSampleRate: number(0, [0, 8], 'share of prompts', {
    why: 'Start so many more, train on the first complete; 0 = off.',
    verl: '=',
  }),
  partialRollout: flag(false, 'Go on in the next step with what overSampleRate left over; false = throw it away.'),
  maxNumSeqs: count(128, 'sequences', {
    why: 'Sequences decoded at once; bounds the KV cache.',
    verl: 'actor_rollout_ref.rollout.max_num_seqs',
  }),
  preemption: choice(
    'parked',
    ['off', 'parked', 'latest'],
    'Whose slot goes to one that waits: samples in a slow tool call, or latest arrived first; no token changes.',
  ),
  asyncScheduling: choice(
    'auto',
    ['auto', 'on', 'off'],
    'Start a pass before the last one was read, so that the GPU never waits; auto = where it pays; no token changes.',
  ),
  speculative: v.optional(speculative, {}),
  checkpointEngine: v.optional(checkpointEngine, {}),
  multiTurn: v.optional(multiTurn, {}),
  agent: v.optional(agent, {}),
  valKwargs: v.optional(valKwargs, {}),
});
