/**
 * An agent of @openai/agents, run by test/unit/agentClients.test.ts in a folder with that package. Arguments: the address of
 * `webgrpo serve`, `responses`, `chat` or `structured`, and `streamed`. Prints what the agent answered and what the calculator was given.
 */

// @ts-nocheck: the package is not in node_modules
import { Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, tool } from '@openai/agents';
import OpenAI from 'openai';

const [url, kind, streamed] = process.argv.slice(2);
const client = new OpenAI({ apiKey: 'none', baseURL: `${url}/v1`, maxRetries: 0 });
const model = new (kind === 'chat' ? OpenAIChatCompletionsModel : OpenAIResponsesModel)(client, 'talking');
const runner = new Runner({ tracingDisabled: true });
const question = 'What is 6 times 7?';
const schemaOf = (properties) => ({
  ...{ type: 'object', properties, required: Object.keys(properties), additionalProperties: false },
});

if (kind === 'structured') {
  const outputType = {
    type: 'json_schema',
    name: 'reply',
    strict: true,
    schema: schemaOf({ answer: { type: 'integer' } }),
  };
  const { finalOutput } = await runner.run(new Agent({ name: 'solver', model, outputType }), question);
  console.log(JSON.stringify(finalOutput));
} else {
  const given = [];
  const calculator = tool({
    ...{ name: 'calculator', description: 'Computes.', strict: true },
    parameters: schemaOf({ expression: { type: 'string' } }),
    execute: async (args) => {
      given.push(args);
      return '42';
    },
  });
  const agent = new Agent({ name: 'solver', instructions: 'Use the calculator.', tools: [calculator], model });
  const result = await runner.run(agent, question, { stream: streamed !== undefined });
  if (streamed) await result.completed;
  console.log(JSON.stringify({ answer: result.finalOutput, given }));
}
