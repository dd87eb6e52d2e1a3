/** An HTTP server of `webgrpo serve` over a client run without a GPU. */

import { onTestFinished } from 'vitest';
import { listen, type ListenOptions } from '../src/cli/serve/listen.ts';
import { routes } from '../src/cli/serve/routes.ts';
import { talkingRun } from './clientEngine.ts';
import { tokenizer } from './scriptedTurns.ts';

/** Starts a server that is closed at the end of the test. @param tokens maximum tokens of a prompt, and of a response */
export async function servedRun({ tokens, ...options }: Partial<ListenOptions> & { tokens?: number } = {}) {
  const length = tokens && { data: { trainBatchSize: 1, maxPromptLength: tokens, maxResponseLength: tokens } };
  const run = talkingRun(length ? { change: length } : {});
  const { groups } = run.trainer;
  const handler = routes({ groups, metrics: () => undefined, trainBatchSize: 1 });
  const server = await listen(handler, { host: '127.0.0.1', port: 0, ...options });
  onTestFinished(async () => {
    await run.trainer.close();
    await server.close();
  });
  return { ...run, groups, handler, url: server.url };
}

/** Returns replies for smolagents, whose agent ends with a call of the tool `final_answer`. */
export const callsUntilAnswer = (request: { contextIds: Uint32Array }): string => {
  const reply = callsCalculator(request);
  if (reply.startsWith('<')) return reply;
  return `<tool_call>{"name": "final_answer", "arguments": {"answer": "${reply}"}}</tool_call>`;
};

/** Returns the reply of a model that first calls the calculator, and answers when it has read the result. */
export const callsCalculator = ({ contextIds }: { contextIds: Uint32Array }): string =>
  tokenizer.decode(contextIds).split('6 times 7').at(-1)!.includes('42')
    ? 'It is 42.'
    : '<tool_call>{"name": "calculator", "arguments": {"expression": "6*7"}}</tool_call>';
