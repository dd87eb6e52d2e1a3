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
  enable: flag(true, 'Lets the model call tools; false = one answer, tool calls are plain text.'),
  maxAssistantTurns: count(6, 'turns', 'Assistant messages a sample may write.'),
  maxToolCalls: count(5, 'calls', 'Tool calls a sample may make, over all turns.'),
  maxToolResponseLength: count(64, 'characters', 'Longer tool output is cut at its end.'),
  toolResponseTruncateSide: choice('right', ['left', 'right', 'middle'], 'Which part of too long tool output goes.'),
  toolTimeoutS: positive(10, 's', 'A tool that takes longer answers with an error text.'),
  sampleTimeoutS: number(undefined, ANY, 's', 'A sample that takes longer ends as it is; absent = no limit.'),
  onParseError: choice('tell', ['tell', 'stop'], 'tell = the model reads what is wrong with its call; stop = it ends.'),
  onToolFailure: choice('tell', ['tell', 'stop'], 'The same for a tool that throws or takes too long.'),
  format: choice(
    'hermes',
    Object.keys(TOOL_PARSERS) as (keyof typeof TOOL_PARSERS)[],
    'How a tool call is written; hermes = <tool_call>{json}</tool_call>.',
  ),
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
  defaultAgentLoop: text('tool_agent', 'single_turn, tool_agent, or one registered by registerAgentLoop().'),
  timeoutS: positive(300, 's', 'A loop of your own that neither generates nor calls tools for so long has failed.'),
});

const valKwargs = part({
  n: count(1, 'samples', 'Samples per held-out problem; more narrows the error of pass@1 and gives pass@k.'),
  temperature: number(1, [0, 1e6], '', '1 = what training samples from; 0 = greedy.'),
  topK: countOrOff(0, 'tokens', '0 = off.'),
  topP: number(1, [1e-6, 1], 'probability', '1 = off.'),
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
  updateWeightsBucketMegabytes: number(
    16,
    [0.0625, 32],
    'MiB',
    'Weights travel in buckets of this size: one is read while the one before is written.',
  ),
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
  n: count(8, 'samples', 'Samples per prompt: the group that advantages are computed over.'),
  temperature: number(1, TEMPERATURE, '', 'Training divides logits by it as well, so that both see one distribution.'),
  topK: countOrOff(0, 'tokens', 'Keep the k likeliest; 0 = off. Training renormalises by the kept mass.'),
  topP: number(1, [1e-6, 1], 'probability', 'Keep the smallest set of this mass; 1 = off.'),
  minP: number(0, SHARE, 'share of the largest probability', 'Keep tokens above this share; 0 = off.'),
  repetitionPenalty: positive(1, '', 'Above 1 makes tokens of the context and the turn less likely; 1 = off.'),
  presencePenalty: number(0, [-Infinity, Infinity], 'logit', 'Taken off tokens that the turn has drawn; 0 = off.'),
  frequencyPenalty: number(0, [-Infinity, Infinity], 'logit', 'Taken off for each time it was drawn; 0 = off.'),
  minNewTokens: count(0, 'tokens', { why: 'A turn cannot end before so many; 0 = off.', min: 0 }),
  stop: optionalTexts('Texts that end a turn, wherever in a token; absent = only its end token does.'),
  includeStopStrInOutput: flag(false, "Whether tools and rewards see such a text in the turn; vLLM's name."),
  overSampleRate: number(0, [0, 8], 'share of prompts', 'Start so many more, train on the first complete; 0 = off.'),
  partialRollout: flag(false, 'Go on in the next step with what overSampleRate left over; false = throw it away.'),
  maxNumSeqs: count(128, 'sequences', 'Sequences decoded at once; bounds the KV cache.'),
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
