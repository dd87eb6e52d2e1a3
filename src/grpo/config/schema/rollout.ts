/** Config part `rollout`: sampling, turns and tools, evaluation. */

import * as v from 'valibot';
import { TOOL_PARSERS } from '../../../rollout/tools/parser.ts';
import {
  choice,
  count,
  countOrOff,
  flag,
  flagOrAuto,
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
  enable: flag(true, {
    why: 'Allow the model to call tools. false = one answer, in which tool calls are plain text.',
    verl: '=',
  }),
  maxAssistantTurns: count(6, 'turns', {
    why: 'Maximum number of assistant messages per sample.',
    verl: '=',
    trl: 'max_tool_calling_iterations',
    note: "TRL's number is one less: turns after a tool",
  }),
  maxToolCalls: count(5, 'calls', {
    why: 'Maximum number of tool calls per sample, over all turns.',
    verl: 'actor_rollout_ref.rollout.multi_turn.max_parallel_calls',
    note: 'verl limits a turn, we limit the sample',
  }),
  maxToolResponseLength: count(256, 'characters', {
    why: 'Maximum number of characters of a tool output; longer output is truncated.',
    verl: '=',
  }),
  toolResponseTruncateSide: choice('right', ['left', 'right', 'middle'], {
    why: 'Part of too long tool output that is removed.',
    verl: '=',
  }),
  toolTimeoutS: positive(10, 's', 'Time limit of a tool call. After it, the model reads an error text.'),
  sampleTimeoutS: number(
    undefined,
    ANY,
    's',
    'Time limit of a sample, which then ends with the tokens it has. Default: no limit.',
  ),
  onParseError: choice(
    'tell',
    ['tell', 'stop'],
    'tell = the model reads the error in its call. stop = the sample ends.',
  ),
  onToolFailure: choice('tell', ['tell', 'stop'], 'Like onParseError, for a tool that throws or takes too long.'),
  format: choice('hermes', Object.keys(TOOL_PARSERS) as (keyof typeof TOOL_PARSERS)[], {
    why: 'Format of tool calls. hermes = <tool_call>{json}</tool_call>.',
    verl: '=',
  }),
  constrainToolCalls: flag(
    false,
    'Inside a tool call, sample only tokens that fit the schemas. Costs a read-back per token; fewer with speculative decoding.',
  ),
  toolSchemasInPrompt: flagOrAuto(
    "The template writes the tools' schemas into the prompt. auto = if the template reads `tools`, except for the template of the shipped checkpoints, which were trained without schemas.",
  ),
});

const agent = part({
  defaultAgentLoop: text('tool_agent', {
    why: 'Agent loop: single_turn, tool_agent, or one registered with registerAgentLoop().',
    verl: '=',
  }),
  timeoutS: positive(
    300,
    's',
    'Time for which a custom loop can be idle, without generating or calling tools, before it fails.',
  ),
});

const valKwargs = part({
  n: count(1, 'samples', {
    why: 'Samples per held-out problem. More reduce the error of pass@1 and allow pass@k.',
    verl: '=',
    trl: 'num_generations_eval',
  }),
  temperature: number(1, [0, 1e6], '', { why: '1 = the distribution of training; 0 = greedy.', verl: '=' }),
  topK: countOrOff(0, 'tokens', { why: 'Keep the k most likely tokens; 0 = off.', verl: '=' }),
  topP: number(1, [1e-6, 1], 'probability', {
    why: 'Keep the fewest, most likely tokens that have this share of the mass that topK keeps; 1 = off.',
    verl: '=',
  }),
  minP: number(0, SHARE, 'share of the largest probability', 'Keep tokens that have at least this share; 0 = off.'),
});

const speculative = part({
  enable: flag(
    false,
    'Speculative decoding: guess tokens and check several in one pass. Does not change any token or log-prob. Faster for few, repetitive sequences.',
  ),
  maxDraftTokens: count(
    8,
    'tokens',
    'Maximum number of draft tokens (guesses) of a sequence per pass. The actual number adapts to how many are accepted.',
  ),
  minNgram: count(
    3,
    'tokens',
    'A guess needs this many last tokens to have occurred before, in the prompt, the sample itself or another sample of the prompt.',
  ),
  history: count(8, 'samples', {
    why: 'Finished samples of each prompt, from all steps, that guesses can be taken from.',
    min: 0,
  }),
  adapt: flag(
    true,
    'Use speculative decoding only while a token takes less time with it than without. Does not change any token.',
  ),
  verifyRows: count(
    undefined,
    'rows',
    'Maximum number of rows of logits in a pass with speculative decoding. Default: maxNumSeqs, which needs no additional memory.',
  ),
});

const checkpointEngine = part({
  updateWeightsBucketMegabytes: number(16, [0.0625, 32], 'MiB', {
    why: 'Size of the buckets in which weights are sent. One is read while the previous one is written.',
    verl: '=',
    note: 'MiB of 2 ** 20 bytes; at most 32 here',
  }),
  content: choice(
    'whole',
    ['whole', 'delta'],
    'delta = skip buckets whose bytes have not changed since the last transfer. The sender keeps a copy in host memory to compare.',
  ),
  kvCache: choice(
    'recompute',
    ['recompute', 'keep'],
    'Cached contexts of samples in flight when new weights arrive. recompute = with the new weights; keep = as the old weights computed them.',
  ),
});

export const rollout = part({
  n: count(8, 'samples', {
    why: 'Samples per prompt. They form the group that advantages are computed over.',
    verl: '=',
    trl: 'num_generations',
  }),
  temperature: number(1, TEMPERATURE, '', {
    why: 'Sampling temperature. Training also divides logits by it, so that both use the same distribution.',
    verl: '=',
    trl: 'temperature',
    live: true,
  }),
  topK: countOrOff(0, 'tokens', {
    why: 'Keep the k most likely tokens; 0 = off. Training renormalises by the kept mass.',
    verl: '=',
    trl: 'top_k',
    note: 'off is 0 here and in TRL, -1 in verl (also accepted here)',
  }),
  topP: number(1, [1e-6, 1], 'probability', {
    why: 'Keep the fewest, most likely tokens that have this share of the mass that topK keeps; 1 = off.',
    verl: '=',
    trl: 'top_p',
    live: true,
  }),
  minP: number(0, SHARE, 'share of the largest probability', {
    why: 'Keep tokens that have at least this share; 0 = off.',
    trl: 'min_p',
  }),
  repetitionPenalty: positive(1, '', {
    why: 'Above 1 makes tokens of the context and the turn less likely; 1 = off.',
    trl: 'repetition_penalty',
  }),
  presencePenalty: number(
    0,
    [-Infinity, Infinity],
    'logit',
    'Subtracted from the logits of tokens that the turn has already; 0 = off.',
  ),
  frequencyPenalty: number(
    0,
    [-Infinity, Infinity],
    'logit',
    "Subtracted from a token's logit for each time that the turn has it; 0 = off.",
  ),
  minNewTokens: count(0, 'tokens', { why: 'Minimum number of tokens of a turn; 0 = off.', min: 0 }),
  stop: optionalTexts('Texts that end a turn, even inside a token. Default: only the end token ends a turn.'),
  includeStopStrInOutput: flag(false, "True if tools and rewards read the stop text in the turn. vLLM's name."),
  overSampleRate: number(0, [0, 8], 'share of prompts', {
    why: 'Extra prompts to start, as a fraction of the batch. The step trains on the first groups to complete; 0 = off.',
    verl: '=',
  }),
  partialRollout: flag(false, 'Continue unfinished groups of overSampleRate in the next step. false = drop them.'),
  maxNumSeqs: count(128, 'sequences', {
    why: 'Sequences decoded at the same time. Limits the KV cache.',
    verl: 'actor_rollout_ref.rollout.max_num_seqs',
  }),
  preemption: choice(
    'parked',
    ['off', 'parked', 'latest'],
    'Samples that can lose their slot to a waiting one: those in a slow tool call, or the latest arrivals. Does not change any token.',
  ),
  speculative: v.optional(speculative, {}),
  checkpointEngine: v.optional(checkpointEngine, {}),
  multiTurn: v.optional(multiTurn, {}),
  agent: v.optional(agent, {}),
  valKwargs: v.optional(valKwargs, {}),
});
