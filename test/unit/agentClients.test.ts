/**
 * Third-party agents against `webgrpo serve` over a scripted engine: each client runs a tool loop with its default settings, except for
 * address, key and model. Python's clients: test/gpu/agentClients.node.test.ts.
 */

import { execFile } from 'node:child_process';
import { cpSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import Anthropic from '@anthropic-ai/sdk';
import { generateObject, generateText, jsonSchema, type LanguageModel, stepCountIs, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { beforeAll, expect, test } from 'vitest';
import { callsCalculator, servedRun } from '../servedRun.ts';

const isFull = process.env['FULL_TESTS'] === '1';
const run = promisify(execFile);
Object.assign(globalThis, { AI_SDK_LOG_WARNINGS: false });

const QUESTION = 'What is 6 times 7?';
const NAME = 'calculator';
const DESCRIPTION = 'Computes.';
const PARAMETERS = {
  type: 'object' as const,
  properties: { expression: { type: 'string' as const } },
  required: ['expression'],
  additionalProperties: false as const,
};
const FUNCTION = { name: NAME, description: DESCRIPTION, parameters: PARAMETERS };

/** Returns the answer of a third-party agent that sends its requests to `url`, an address without /v1. */
type Client = (url: string, calculate: (args: unknown) => string) => Promise<string | undefined>;

const apiKey = 'none';
const model = 'talking';
const openai = (url: string) => new OpenAI({ apiKey, baseURL: `${url}/v1`, maxRetries: 0 });
const anthropic = (url: string) => new Anthropic({ apiKey, baseURL: url, maxRetries: 0 });
const tools = (calculate: (args: unknown) => string) => ({
  [NAME]: tool({
    description: DESCRIPTION,
    inputSchema: jsonSchema<object>(PARAMETERS),
    execute: (args) => calculate(args),
  }),
});

/** Agent: Vercel's `ai` package with one of its providers. Requests are complete or streamed. */
const ai =
  (provider: (url: string) => LanguageModel, isStreamed = false): Client =>
  async (url, calculate) => {
    const asked = {
      ...{ model: provider(url), prompt: QUESTION, tools: tools(calculate) },
      ...{ stopWhen: stepCountIs(4), maxRetries: 0 },
    };
    if (!isStreamed) return (await generateText(asked)).text;
    const { textStream, totalUsage } = streamText({ ...asked, onError: ({ error }) => expect(error).toBeUndefined() });
    let text = '';
    for await (const piece of textStream) text += piece;
    expect((await totalUsage).inputTokens).toBeGreaterThan(10);
    return text;
  };

const byOpenAI = (url: string) => createOpenAI({ apiKey, baseURL: `${url}/v1` });
const byAnthropic = (url: string) => createAnthropic({ apiKey, baseURL: `${url}/v1` })(model);

/** Folder into which --full installs packages with a third of all files that `npm ci` would write. */
let folder = '';
beforeAll(async () => {
  if (!isFull) return;
  folder = mkdtempSync(join(tmpdir(), 'webgrpo-clients-'));
  cpSync('test/agentClients.mjs', join(folder, 'agentClients.mjs'));
  writeFileSync(join(folder, 'package.json'), '{ "private": true }\n');
  const quiet = ['--no-audit', '--no-fund', '--prefer-offline', '--ignore-scripts'];
  const packages = ['@openai/agents@0.20', 'openai@6', '@langchain/openai@1', '@langchain/core@1'];
  await run('npm', ['install', ...quiet, ...packages], { cwd: folder });
});

/** Returns the result of an agent of such a package, which runs in a process. `words`: the arguments after the address. */
async function installed(url: string, ...words: string[]): Promise<unknown> {
  const { stdout } = await run(process.execPath, ['agentClients.mjs', url, ...words], { cwd: folder });
  return JSON.parse(stdout) as unknown;
}

const CLIENTS: Record<string, Client> = {
  'openai chat, runTools': async (url, calculate) => {
    const run = openai(url).chat.completions.runTools({
      model,
      messages: [{ role: 'user', content: QUESTION }],
      tools: [{ type: 'function', function: { ...FUNCTION, parse: JSON.parse, function: calculate } }],
    });
    return (await run.finalContent()) ?? undefined;
  },
  'openai responses, by previous_response_id': async (url, calculate) => {
    const client = openai(url);
    const asked = { model, tools: [{ type: 'function' as const, ...FUNCTION, strict: true }] };
    let response = await client.responses.create({ ...asked, input: QUESTION });
    for (;;) {
      const calls = response.output.filter((item) => item.type === 'function_call');
      if (calls.length === 0) return response.output_text;
      const input = calls.map(({ call_id, arguments: args }) => {
        return { type: 'function_call_output' as const, call_id, output: calculate(JSON.parse(args)) };
      });
      response = await client.responses.stream({ ...asked, input, previous_response_id: response.id }).finalResponse();
    }
  },
  'ai with @ai-sdk/openai': ai((url) => byOpenAI(url)(model)),
  'ai with @ai-sdk/openai, streamed': ai((url) => byOpenAI(url)(model), true),
  'ai with @ai-sdk/openai chat': ai((url) => byOpenAI(url).chat(model)),
  'ai with @ai-sdk/anthropic': ai(byAnthropic),
  'ai with @ai-sdk/anthropic, streamed': ai(byAnthropic, true),
  'ai with @ai-sdk/openai-compatible, streamed': ai(
    (url) => createOpenAICompatible({ name: 'webgrpo', apiKey, baseURL: `${url}/v1`, includeUsage: true })(model),
    true,
  ),
  '@anthropic-ai/sdk, toolRunner': async (url, calculate) => {
    const runner = anthropic(url).beta.messages.toolRunner({
      ...{ model, max_tokens: 100, messages: [{ role: 'user', content: QUESTION }] },
      tools: [
        {
          ...{ type: 'custom', name: NAME, description: DESCRIPTION, input_schema: PARAMETERS },
          parse: (args: unknown) => args,
          run: calculate,
        },
      ],
    });
    const [block] = (await runner).content;
    return block.type === 'text' ? block.text : undefined;
  },
  '@anthropic-ai/sdk, streamed': async (url, calculate) => {
    const messages: Anthropic.MessageParam[] = [{ role: 'user', content: QUESTION }];
    const asked = { model, max_tokens: 100, tools: [{ name: NAME, input_schema: PARAMETERS }] };
    for (;;) {
      const {
        content,
        stop_reason: stop,
        usage,
      } = await anthropic(url)
        .messages.stream({ ...asked, messages })
        .finalMessage();
      expect(usage.input_tokens).toBeGreaterThan(10);
      messages.push({ role: 'assistant', content });
      if (stop !== 'tool_use') return content[0].type === 'text' ? content[0].text : undefined;
      const uses = content.filter((block) => block.type === 'tool_use');
      const results = uses.map(({ id, input }) => {
        return { type: 'tool_result' as const, tool_use_id: id, content: calculate(input) };
      });
      messages.push({ role: 'user', content: results });
    }
  },
};

/** Expects the model's final answer from a client that has run one call of the calculator. */
async function expectAnswer(ask: (url: string) => Promise<unknown>): Promise<void> {
  const { url, rollout, groups } = await servedRun();
  rollout.says = callsCalculator;
  expect(await ask(url)).toEqual({ answer: 'It is 42.', given: [{ expression: '6*7' }] });
  const [episode] = groups.episodes;
  // There must be one trajectory with two turns: the client's second request continues the tokens of the first.
  expect([groups.size, episode.rows().map(({ trajectory }) => trajectory.numTurns)]).toEqual([1, [2]]);
}

test.each(Object.entries(CLIENTS))('%s', (_, client) =>
  expectAnswer(async (url) => {
    const given: unknown[] = [];
    const answer = await client(url, (args) => {
      given.push(args);
      return '42';
    });
    return { answer, given };
  }),
);

const INSTALLED = [
  ...['@openai/agents responses', '@openai/agents responses streamed', '@openai/agents chat streamed'],
  ...['@langchain/openai responses', '@langchain/openai chat'],
];
test.runIf(isFull).each(INSTALLED)('%s', (words) => expectAnswer((url) => installed(url, ...words.split(' '))));

const ANSWER = {
  type: 'object' as const,
  properties: { answer: { type: 'integer' as const } },
  required: ['answer'],
  additionalProperties: false as const,
};
const NAMED = { type: 'json_schema' as const, name: 'reply', schema: ANSWER, strict: true };
const structured = (provider: (url: string) => LanguageModel) => async (url: string) =>
  (await generateObject({ model: provider(url), prompt: QUESTION, schema: jsonSchema(ANSWER), maxRetries: 0 })).object;

/** A name, and a question that must be answered by a schema. */
type Structured = [string, (url: string) => Promise<unknown>];
test.each<Structured>([
  [
    'openai chat',
    async (url) => {
      const { schema, name, strict, type } = NAMED;
      const asked = { model, messages: [{ role: 'user' as const, content: QUESTION }] };
      const parsed = await openai(url).chat.completions.parse({
        ...asked,
        response_format: { type, json_schema: { name, strict, schema } },
      });
      return JSON.parse(parsed.choices[0].message.content!) as unknown;
    },
  ],
  [
    'openai responses',
    async (url) => {
      const { output_text: text } = await openai(url).responses.parse({
        model,
        input: QUESTION,
        text: { format: NAMED },
      });
      return JSON.parse(text) as unknown;
    },
  ],
  ...(isFull ? ['@openai/agents responses', '@langchain/openai responses', '@langchain/openai chat'] : []).map(
    (words): Structured => [words, (url) => installed(url, ...words.split(' '), 'structured')],
  ),
  ['@ai-sdk/openai', structured((url) => byOpenAI(url)(model))],
  ['@ai-sdk/openai chat', structured((url) => byOpenAI(url).chat(model))],
  ['@ai-sdk/anthropic', structured(byAnthropic)],
  [
    '@ai-sdk/openai-compatible',
    structured((url) => createOpenAICompatible({ name: 'webgrpo', apiKey, baseURL: `${url}/v1` })(model)),
  ],
])('structured output: %s', async (_, ask) => {
  const { url, rollout } = await servedRun();
  // The scripted engine answers as the grammar of the request allows: a forced call, or JSON.
  rollout.says = ({ sampling: { requiredCalls, toolCalls = [] } }) =>
    requiredCalls
      ? `<tool_call>{"name": "${toolCalls[0].name}", "arguments": {"answer": 42}}</tool_call>`
      : '{"answer":42}';
  expect(await ask(url)).toEqual({ answer: 42 });
  const [{ sampling }] = rollout.requests;
  // By default, @ai-sdk/openai-compatible asks for any JSON object, without its schema.
  expect(sampling.jsonSchema ?? sampling.toolCalls?.[0].parameters).toMatchObject({ type: 'object' });
});

test('both official packages list the model and get errors that they know', async () => {
  const { url } = await servedRun({ token: 'secret' });
  const key = { apiKey: 'secret', maxRetries: 0 };
  const [one, other] = [new OpenAI({ ...key, baseURL: `${url}/v1` }), new Anthropic({ ...key, baseURL: url })];
  for (const list of [await one.models.list(), await other.models.list()])
    expect(list.data.map(({ id }) => id)).toEqual([model]);
  expect((await other.models.retrieve(model)).display_name).toBe(model);
  await expect(openai(url).models.list()).rejects.toThrow(OpenAI.AuthenticationError);
  await expect(anthropic(url).models.list()).rejects.toThrow(Anthropic.AuthenticationError);
  await expect(other.messages.create({ model, max_tokens: 0, messages: [] })).rejects.toThrow(
    Anthropic.BadRequestError,
  );
  await expect(one.responses.create({ model, input: [] })).rejects.toMatchObject({ status: 400, param: 'input' });
});
