/**
 * Agents of packages that are not in node_modules, because they have many files. test/unit/agentClients.test.ts installs them into a folder
 * with --full, and runs this script there. Arguments: the address of `webgrpo serve`; `@openai/agents` or `@langchain/openai`; `responses` or
 * `chat`; and `streamed` or `structured`. Prints what the agent answered and what the calculator was given, or the structured answer.
 */

// @ts-nocheck: the packages are not in node_modules

const [url, name, api, how] = process.argv.slice(2);
const [apiKey, baseURL, model] = ['none', `${url}/v1`, 'talking'];
const question = 'What is 6 times 7?';
const schemaOf = (properties) => ({
  ...{ type: 'object', properties, required: Object.keys(properties), additionalProperties: false },
});
const ANSWER = schemaOf({ answer: { type: 'integer' } });
const given = [];
const calculator = {
  ...{ name: 'calculator', description: 'Computes.', parameters: schemaOf({ expression: { type: 'string' } }) },
  execute: async (args) => {
    given.push(args);
    return '42';
  },
};

async function byAgents() {
  const { Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, tool } = await import('@openai/agents');
  const { default: OpenAI } = await import('openai');
  const client = new OpenAI({ apiKey, baseURL, maxRetries: 0 });
  const talking = new (api === 'chat' ? OpenAIChatCompletionsModel : OpenAIResponsesModel)(client, model);
  const runner = new Runner({ tracingDisabled: true });
  if (how === 'structured') {
    const outputType = { type: 'json_schema', name: 'reply', strict: true, schema: ANSWER };
    return (await runner.run(new Agent({ name: 'solver', model: talking, outputType }), question)).finalOutput;
  }
  const tools = [tool({ ...calculator, strict: true })];
  const agent = new Agent({ name: 'solver', instructions: 'Use the calculator.', tools, model: talking });
  const result = await runner.run(agent, question, { stream: how === 'streamed' });
  if (how === 'streamed') await result.completed;
  return { answer: result.finalOutput, given };
}

async function byLangChain() {
  const { HumanMessage, ToolMessage } = await import('@langchain/core/messages');
  const { ChatOpenAI } = await import('@langchain/openai');
  const useResponsesApi = api === 'responses';
  const chat = new ChatOpenAI({ model, apiKey, useResponsesApi, configuration: { baseURL }, maxRetries: 0 });
  if (how === 'structured') return chat.withStructuredOutput(ANSWER).invoke(question);
  const { execute, ...spec } = calculator;
  const bound = chat.bindTools([{ type: 'function', function: spec }]);
  const messages = [new HumanMessage(question)];
  for (let turn = 0; turn < 4; turn++) {
    const reply = await bound.invoke(messages);
    messages.push(reply);
    if (!reply.tool_calls?.length) return { answer: reply.text, given };
    for (const { id, args } of reply.tool_calls)
      messages.push(new ToolMessage({ content: await execute(args), tool_call_id: id }));
  }
  return { answer: undefined, given };
}

console.log(JSON.stringify(await { '@openai/agents': byAgents, '@langchain/openai': byLangChain }[name]()));
