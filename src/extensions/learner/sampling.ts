/** Samples completions of prompts, each a single turn. All run concurrently in the rollout engine, as the trainer's samples do. */

import { InputError } from '../../errors.ts';
import { encodePrompt } from '../../rollout/agent/prompt.ts';
import { turnText } from '../../rollout/agent/turnText.ts';
import type { GenerateRequest, Generation, SamplingParams } from '../../rollout/types.ts';
import { givenProblem } from '../../tasks/problem.ts';
import type { Message } from '../../tasks/task.ts';
import type { Tool } from '../../tasks/tool.ts';
import { show } from '../../grpo/config/tree.ts';
import { GREEDY, samplingParams } from '../../grpo/generate/options.ts';
import { randomKey } from '../../grpo/generate/samples.ts';
import type { TrainerEngine } from '../../grpo/types.ts';
import { tokensOf } from './rows.ts';
import type { SampleSettings } from './settings.ts';
import type { Prompt, SampledRow } from './types.ts';

type Engine = Pick<TrainerEngine, 'tokenizer' | 'rollout' | 'model'>;

/**
 * Validates the prompts and returns a function of the step number. The function returns the engine's requests as [prompts][n]. Throws
 * InputError that names the prompt.
 */
export function sampleRequests(
  engine: Engine,
  prompts: readonly Prompt[],
  n: number,
  { config, greedy, seed }: SampleSettings,
  { tools, requestId }: { tools: Tool[]; requestId: string },
): (step: number) => GenerateRequest[][] {
  if (!Array.isArray(prompts) || prompts.length === 0)
    throw new InputError(
      `sample: prompts is ${show(prompts)}. Give a list of texts, lists of messages or lists of token ids.`,
    );
  if (!(Number.isInteger(n) && n >= 1))
    throw new InputError(`sample: n is ${show(n)}; allowed: an integer of at least 1.`);
  const params = samplingParams(config, engine.tokenizer.eosTokenIds);
  const sampling: SamplingParams = greedy ? { ...params, ...GREEDY } : params;
  const { maxPromptLength } = config.data;
  const contexts = prompts.map((prompt: Prompt, p) => {
    const contextIds = idsOf(engine, prompt, `sample: prompt ${p}`, tools);
    if (contextIds.length === 0 || contextIds.length > maxPromptLength)
      throw new InputError(
        `sample: prompt ${p} has ${contextIds.length} tokens; allowed: 1 to ${maxPromptLength}, the engine's data.maxPromptLength.`,
      );
    return contextIds;
  });
  return (step) =>
    contexts.map((contextIds, p) =>
      Array.from({ length: n }, (_, s) => ({
        requestId: `${requestId}.${p}.${s}`,
        contextIds,
        promptLength: contextIds.length,
        key: randomKey(seed, step, p, s),
        sampling,
      })),
    );
}

function idsOf({ tokenizer, model }: Engine, prompt: Prompt, what: string, tools: Tool[]): Uint32Array {
  if (typeof prompt === 'string') return Uint32Array.from(tokenizer.withStart(tokenizer.encodePlain(prompt)));
  if (!isMessages(prompt)) return tokensOf(what, prompt, model.config.vocabSize);
  const problem = givenProblem(what, () => ({ id: what, messages: prompt, answer: '' }));
  return encodePrompt({ tokenizer, problem, tools, toolSchemasInPrompt: tools.length > 0 });
}

const isMessages = (prompt: Exclude<Prompt, string>): prompt is Message[] =>
  Array.isArray(prompt) && typeof prompt[0] === 'object' && prompt[0] !== null;

/**
 * Samples all requests concurrently. If one fails, aborts the others and rejects after they have ended, so that none stays in the engine.
 */
export async function drawRows(engine: Engine, requests: GenerateRequest[][]): Promise<SampledRow[][]> {
  const { rollout } = engine;
  const all = requests.flat();
  const drawn = all.map(async (request) => {
    try {
      return await rollout.generate(request);
    } catch (error) {
      rollout.abort(all.map(({ requestId }) => requestId));
      throw error;
    } finally {
      rollout.release(request.requestId);
    }
  });
  await Promise.allSettled(drawn);
  const generations = (await Promise.all(drawn)).values();
  return requests.map((group, p) => group.map((request) => sampledRow(engine, request, generations.next().value!, p)));
}

function sampledRow(
  { tokenizer }: Engine,
  { contextIds, promptLength, sampling }: GenerateRequest,
  generation: Generation,
  group: number,
): SampledRow {
  const { tokenIds, logProbs, stopReason } = generation;
  const T = promptLength + tokenIds.length;
  const row = { tokens: new Uint32Array(T), mask: new Uint8Array(T), logProbs: new Float32Array(T) };
  row.tokens.set(contextIds);
  row.tokens.set(tokenIds, promptLength);
  row.mask.fill(1, promptLength);
  row.logProbs.set(logProbs, promptLength);
  const text = turnText(tokenizer, generation, { named: false, includeStop: sampling.includeStopStrInOutput });
  return { ...row, text, stopReason, promptLength, group };
}
